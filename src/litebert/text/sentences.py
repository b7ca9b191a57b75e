"""A paragraph in, its sentences out: rules over compiled patterns and tables of words. Why rules:
docs/decisions/sentences.md.

A stop is a candidate when white space or the paragraph's end follows it and its closing quotes and
brackets; stops of scripts that write no spaces need none. Then the words at both sides decide. No
character is lost: the sentences joined are the paragraph, white space aside. (ALBERT §3.1: order is
learned over runs of sentences.)
"""

import re

RULES_VERSION = 1
"""Changes whenever the sentences of some text do: shards built by other rules are not continued."""

# ---- words that tell an abbreviation's full stop from a sentence's
#
# Abbreviations are written without their last full stop. Case counts: "No. 5" and "said no. Then".
# Several languages share one table, since the same text often mixes them; a word that is common at
# the end of a sentence in one of them ("art", "max", "est") stays out.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before a name: the full stop never ends a sentence.
TITLES = _words("""
    Dr Drs Mr Mrs Ms Mx Messrs Mmes Prof Profs Rev Revd Hon Fr Sr Br St Ste Sts Mt Ft Pres Gov
    Sen Reps Rep Supt Supts Gen Col Maj Capt Cpt Cmdr Cdr Comdr Lt Lieut Sgt Sergt Cpl Pvt Pfc
    Adm Brig Hr Bros Insp Det Atty Amb Sec Treas dr prof mr mrs ms vs Vs viz cf Cf al ca Ca
    circa eg ie approx Approx esp incl resp Hrn Frl Dipl Ing Hl Fam Mme Mlle Mgr MM Me Sra Srta
    Dra Da Dn Dña Sig Dott Avv sig dott avv Arch Prof.ssa Exmo Dhr Mevr drs bzw ggf evtl sog vgl
    z d bspw inkl zzgl geb gest verh bijv zgn resp m.a.w np tzn tzw ul im św ks inż mgr hab ул
    им акад проф доц гр пр св см ср напр стр рис табл тыс
""")

# Before a number: the full stop ends a sentence only if something else follows.
NUMBERED = _words("""
    No no Nos nos Nr nr Núm núm N° p pp P Pp S s ss Fig fig Figs figs Eq eq Eqs eqs Vol vol Vols
    vols Ch ch Chap chap Sec sec Sect sect Pt pt Art art Arts arts Abs Bd Kap Abb Tab Anm Ex ex
    Op op Ps v vv Vv l ll n nn c fol ed Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Janv
    Févr Avr Juil Okt Dez jan feb mar apr jun jul aug sep okt nov dec т гл п рр с стр рис табл
""")

# May stand at the end of a sentence, or not: what follows decides.
EITHER = _words("""
    Jr Jun Sr Snr Esq Inc Ltd Co Corp Cos Bros LLC Mfg Intl Assn Assoc Dept Univ Inst Dist Ave
    Blvd Rd Sq Hwy Pl Ln Ct etc ibid Ibid et seq op cit rev transl trans eds ed Ed Eds Mass
    Calif Conn Penn Fla Ala Ariz Ark Colo Del Ga Ill Ind Kan Ky La Md Mich Minn Miss Mo Mont Neb
    Nev Okla Ore Pa Tenn Tex Va Vt Wash Wis Wyo Ont Que Alta Sask Man Str Hbf usw usf u.a GmbH
    Ges Cía Cia S.A pag pág av Av Avda tel Tel Mio Mrd Mill St.-Petersburg г гг в вв др пр руб
    млн млрд коп обл р-н
""")

# Words that begin a sentence far more often than a name; they decide after an abbreviation or an
# initial.
STARTERS = _words("""
    The This That These Those There Then They Their Thus Though Through Throughout Today
    Together He She It We You I His Her Its Our My Your A An And As At After Afterwards Although
    All Also Among Another Any Are Because Before Being Between Both But By Can Could Did Do
    Does During Each Early Either Even Every Everyone Finally First For Former Four From Further
    Furthermore Had Has Have Having Hence Here How However If In Indeed Initially Instead Is
    It's Just Last Later Let Like Many Meanwhile Moreover Most Much Neither Never Nevertheless
    No Nobody None Nor Not Nothing Now Of Often On Once One Only Or Other Others Otherwise Over
    Perhaps Please Second Several Should Similarly Since So Some Someone Sometimes Soon Such
    That's There's Three To Two Under Unlike Until Upon Was Were What When Where Whereas Whether
    Which While Who Whoever Why Will With Within Without Would Yes Yet Der Die Das Ein Eine Er
    Sie Es Wir Ich Dies Diese Dieser Dieses Im Am Auf Mit Nach Bei Von Zu Und Aber Doch Dann Nun
    Hier Seit Während Wenn Weil Auch Le La Les Un Une Il Elle Ils Elles On Nous Vous Je Ce Cette
    Ces Dans En Au Aux Pour Mais Et El Los Las Una Ella Ellos Este Esta Con Por Para Pero Se
    Según También Lo Gli Ma Nel Nella Questo Questa Anche O Os As Um Uma Ele Ela Eles No Na Mas
    Também De Het Een Hij Zij Dit Deze Maar Er Ook Он Она Оно Они Мы Я Вы Это Эта Этот В На И Но
    По Для Когда Если После Однако Также Его Её Их
""")

# After a single letter a short word may be a part of a name: Ursula K. Le Guin, Robert M. La
# Follette, J. A. Smith.
_STARTERS_AFTER_INITIAL = frozenset(word for word in STARTERS if len(word) > 3) | _words(
    "The She His Her Its Our But For And How Not Now Yet Was Who Why All One Two He It In We If"
)

# Nouns after "3.", "21." in languages that write ordinals with a full stop; elsewhere a number may
# end a sentence.
_ORDINAL_NOUNS = _words("""
    Januar Februar März April Mai Juni Juli August September Oktober November Dezember Jänner
    Jahrhundert Jahrhunderts Jahrtausend Klasse Auflage Kapitel Platz Juli Mal Bundesliga Liga
    Weltkrieg Armee Division Kongress Bezirk
""")

# Names that keep their exclamation mark.
_EXCLAIMED = _words("Yahoo Jeopardy Yum Chips Jumbo Oklahoma Panic Moulin")

# ---- rules

# Unicode's Sentence_Terminal, as far as living scripts go.
SPACED_STOPS = ".!?…‽⁇⁈⁉‼؟۔؞։\u037e܀܁܂߹॥።፧፨᙮។៕᠃᠉᥄᥅။။༎།⸮꓿꘎꘏꛳꛷"
UNSPACED_STOPS = "。｡！？．।﹒﹖﹗"  # end a sentence without white space
CLOSERS = "\"'”’»›)]}」』】》〉）］｝〟\u201a\u2019"
OPENERS = "\"'“‘„‚«‹([{「『【《〈（［¿¡—–-•*_"

_CLOSERS = re.escape(CLOSERS)
# A literal or a plain set first: the pattern machine looks for it at memory speed. What follows a
# stop is bounded, for a line of a million full stops must not be walked a million times.
_PERIOD_CANDIDATE = re.compile(r"\.[.\"')\]}]{0,8}\s+")
_ASCII_CANDIDATE = re.compile(r"[.!?][.!?\"')\]}]{0,8}\s+")
_CANDIDATE = re.compile(
    rf"[{SPACED_STOPS}][{SPACED_STOPS}{_CLOSERS}]{{0,8}}(?:\s[»›])?\s+"
)  # « Oui. »
_ANY_CANDIDATE = re.compile(
    rf"[{SPACED_STOPS}{UNSPACED_STOPS}][{SPACED_STOPS}{UNSPACED_STOPS}{_CLOSERS}]{{0,8}}"
    rf"(?:\s+|(?<=[{UNSPACED_STOPS}{_CLOSERS}]))"
)
_DOTTED = re.compile(r"(?:\w{1,2}\.)+\w{1,2}")
_LIST_NUMBER = re.compile(r"\d{1,3}|[IVXLC]{1,5}|[ivx]{1,5}|[a-zA-Z]")
_ELISION = re.compile(r"^\w{1,3}['’](?=\w)")  # l'avv. Bianchi
_WORD = re.compile(r"\S{1,24}")
_STOPS = frozenset(SPACED_STOPS + UNSPACED_STOPS)
_NEVER_BEGIN = _STOPS | frozenset(",;:%)]}")
_AROUND_WORD = OPENERS + ",;:"
SUFFIXES = frozenset(word[-4:] for word in TITLES | NUMBERED | EITHER | _EXCLAIMED)
"""The last letters of all that the tables hold."""
_LONGEST = 24
"""No table holds a longer word."""
# After a Japanese quotation these continue the sentence: 「はい。」と言った。
_QUOTATIVES = ("と", "って", "、", "，")


def split_sentences(paragraph: str) -> list[str]:
    """Sentences of a paragraph, without white space at their ends: split_sentences("Hi. Mr. Wu!")
    -> ["Hi.", "Mr. Wu!"]."""
    ends = sentence_ends(paragraph)
    return [paragraph[begin:end].strip() for begin, end in zip([0, *ends], ends, strict=False)]


def sentence_ends(paragraph: str) -> list[int]:
    """Where each sentence of a paragraph ends, white space after it included: sentence_ends("Hi.
    Mr. Wu!") -> [4, 11]."""
    if paragraph.isascii():
        pattern = _ASCII_CANDIDATE if "?" in paragraph or "!" in paragraph else _PERIOD_CANDIDATE
    else:
        pattern = _CANDIDATE
        if any(stop in paragraph for stop in UNSPACED_STOPS):
            pattern = _ANY_CANDIDATE
    ends = []
    begin, length = 0, len(paragraph)
    for match in pattern.finditer(paragraph):
        stop, end = match.span()
        if end == length:
            break
        following = paragraph[end]
        if following.isupper():
            # most are decided by what is cheap to ask: a plain word before, a capital after
            suffix = paragraph[stop - 4 : stop]
            word = suffix[suffix.rfind(" ") + 1 :]
            if not (
                word.isalpha()
                and len(word) > 1
                and word not in SUFFIXES
                and stop - begin > 5
                and paragraph[end - 1] == " "
            ) and not _ends(paragraph, begin, stop, end):
                continue
        # a small letter never begins a sentence
        elif following.islower() or not _ends(paragraph, begin, stop, end):
            continue
        ends.append(end)
        begin = end
    if length and not paragraph.isspace():
        ends.append(length)
    return ends


def end_at(text: str, begin: int, stop: int, limit: int) -> tuple[int, bool]:
    """Where the run of the stop at `stop` ends, before `limit`, and whether a sentence does,
    too."""
    match = _CANDIDATE.match(text, stop, limit)
    if match is None:
        return stop, False
    end = match.end()
    return end, end < limit and not text[end].islower() and _ends(text, begin, stop, end)


def _ends(text: str, begin: int, stop: int, end: int) -> bool:
    """Does the stop, followed at `end` by other text, end the sentence from `begin` on?"""
    following = text[end]
    if not text[end - 1].isspace():
        return _ends_without_space(text, stop, end)
    if following in OPENERS:
        following = text[end : end + 4].lstrip(OPENERS)[:1]
        if following.islower():
            return False
    if following in _NEVER_BEGIN:
        return False
    word = text[max(begin, stop - _LONGEST) : stop]
    word = word[word.rfind(" ") + 1 :]
    first = len(word) == stop - begin
    word = _ELISION.sub("", word.lstrip(OPENERS))
    if text[stop] != "." or text[stop + 1] in _STOPS:  # not a single full stop
        return not (text[stop] == "!" and word in _EXCLAIMED)
    return not word or _full_stop_ends(word, following, text, end, first=first)


def _full_stop_ends(word: str, following: str, text: str, end: int, *, first: bool) -> bool:
    """Does a full stop after `word` end the sentence? `first`: the word is all of it."""
    if first and _LIST_NUMBER.fullmatch(word):  # "1. Introduction"
        return False
    if word in TITLES:
        return False
    if following.isdecimal() and word in NUMBERED:
        return False
    if word.isdecimal():
        return not (len(word) < 3 and _word_at(text, end) in _ORDINAL_NOUNS)
    if len(word) == 1 and word.isalpha():
        return _word_at(text, end) in _STARTERS_AFTER_INITIAL
    if word in EITHER or ("." in word and _DOTTED.fullmatch(word)):
        return _word_at(text, end) in STARTERS
    return True


def _ends_without_space(text: str, stop: int, end: int) -> bool:
    """The same for scripts without spaces: no closing mark in a word, no decimal point."""
    if not any(mark in UNSPACED_STOPS for mark in text[stop:end]):
        return False
    if text.startswith(_QUOTATIVES, end):
        return False
    return not (text[stop] in "．﹒" and text[end].isalnum() and text[stop - 1 : stop].isdecimal())


def _word_at(text: str, start: int) -> str:
    match = _WORD.match(text, start)
    return match[0].strip(_AROUND_WORD) if match else ""
