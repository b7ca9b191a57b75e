"""Words that tell an abbreviation's full stop from a sentence's: the tables of the sentence rules,
and nothing else.
 Abbreviations are written without their last full stop. Case counts, because case tells much: "No.
5" and "said no. Then". Several languages share one table, since the same text often mixes them; a
word that is common at the end of a sentence in one of these languages ("art", "max", "est") stays
out.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before a name: the full stop never ends a sentence.
TITLES = _words("""
    Dr Drs Mr Mrs Ms Mx Messrs Mmes Prof Profs Rev Revd Hon Fr Sr Br St Ste Sts Mt Ft Pres Gov Sen Reps Rep Supt Supts
    Gen Col Maj Capt Cpt Cmdr Cdr Comdr Lt Lieut Sgt Sergt Cpl Pvt Pfc Adm Brig Hr Bros Insp Det Atty Amb Sec Treas
    dr prof mr mrs ms vs Vs viz cf Cf al ca Ca circa eg ie approx Approx esp incl resp
    Hrn Frl Dipl Ing Hl Fam Mme Mlle Mgr MM Me Sra Srta Dra Da Dn Dña Sig Dott Avv sig dott avv Arch Prof.ssa Exmo Dhr Mevr drs
    bzw ggf evtl sog vgl z d bspw inkl zzgl geb gest verh bijv zgn resp m.a.w np tzn tzw ul im św ks inż mgr hab
    ул им акад проф доц гр пр св см ср напр стр рис табл тыс
""")

# Before a number: the full stop ends a sentence only if something else follows.
NUMBERED = _words("""
    No no Nos nos Nr nr Núm núm N° p pp P Pp S s ss Fig fig Figs figs Eq eq Eqs eqs Vol vol Vols vols Ch ch Chap chap
    Sec sec Sect sect Pt pt Art art Arts arts Abs Bd Kap Abb Tab Anm Ex ex Op op Ps v vv Vv l ll n nn c fol ed
    Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Janv Févr Avr Juil Okt Dez jan feb mar apr jun jul aug sep okt nov dec
    т гл п рр с стр рис табл
""")

# May stand at the end of a sentence, or not: what follows decides.
EITHER = _words("""
    Jr Jun Sr Snr Esq Inc Ltd Co Corp Cos Bros LLC Mfg Intl Assn Assoc Dept Univ Inst Dist Ave Blvd Rd Sq Hwy Pl Ln Ct
    etc ibid Ibid et seq op cit rev transl trans eds ed Ed Eds Mass Calif Conn Penn Fla Ala Ariz Ark Colo Del Ga Ill Ind Kan
    Ky La Md Mich Minn Miss Mo Mont Neb Nev Okla Ore Pa Tenn Tex Va Vt Wash Wis Wyo Ont Que Alta Sask Man
    Str Hbf usw usf u.a GmbH Ges Cía Cia S.A pag pág av Av Avda tel Tel Mio Mrd Mill St.-Petersburg
    г гг в вв др пр руб млн млрд коп обл р-н
""")

# Words that begin a sentence far more often than a name; they decide after an abbreviation or an
# initial.
STARTERS = _words("""
    The This That These Those There Then They Their Thus Though Through Throughout Today Together
    He She It We You I His Her Its Our My Your A An And As At After Afterwards Although All Also Among Another Any Are
    Because Before Being Between Both But By Can Could Did Do Does During Each Early Either Even Every Everyone Finally
    First For Former Four From Further Furthermore Had Has Have Having Hence Here How However If In Indeed Initially Instead
    Is It's Just Last Later Let Like Many Meanwhile Moreover Most Much Neither Never Nevertheless No Nobody None Nor Not
    Nothing Now Of Often On Once One Only Or Other Others Otherwise Over Perhaps Please Second Several Should Similarly Since
    So Some Someone Sometimes Soon Such That's There's Three To Two Under Unlike Until Upon Was Were What When Where Whereas
    Whether Which While Who Whoever Why Will With Within Without Would Yes Yet
    Der Die Das Ein Eine Er Sie Es Wir Ich Dies Diese Dieser Dieses Im Am Auf Mit Nach Bei Von Zu Und Aber Doch Dann Nun Hier
    Seit Während Wenn Weil Auch Le La Les Un Une Il Elle Ils Elles On Nous Vous Je Ce Cette Ces Dans En Au Aux Pour Mais Et
    El Los Las Una Ella Ellos Este Esta Con Por Para Pero Se Según También Lo Gli Ma Nel Nella Questo Questa Anche
    O Os As Um Uma Ele Ela Eles No Na Mas Também De Het Een Hij Zij Dit Deze Maar Er Ook
    Он Она Оно Они Мы Я Вы Это Эта Этот В На И Но По Для Когда Если После Однако Также Его Её Их
""")

# After a single letter a short word may be a part of a name: Ursula K. Le Guin, Robert M. La
# Follette, J. A. Smith.
STARTERS_AFTER_INITIAL = frozenset(word for word in STARTERS if len(word) > 3) | _words(
    "The She His Her Its Our But For And How Not Now Yet Was Who Why All One Two He It In We If"
)

# Nouns after "3.", "21." in languages that write ordinals with a full stop; elsewhere a number may
# end a sentence.
ORDINAL_NOUNS = _words("""
    Januar Februar März April Mai Juni Juli August September Oktober November Dezember Jänner Jahrhundert Jahrhunderts
    Jahrtausend Klasse Auflage Kapitel Platz Juli Mal Bundesliga Liga Weltkrieg Armee Division Kongress Bezirk
""")

# Names that keep their exclamation mark.
EXCLAIMED = _words("Yahoo Jeopardy Yum Chips Jumbo Oklahoma Panic Moulin")
