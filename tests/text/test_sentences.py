"""The sentence rules: no character is lost, and a golden set of what is hard, written by hand."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from litebert.text.sentences import split_sentences

# Each line is a paragraph; | marks where a sentence ends. The bar and the spaces around it are the
# paragraph's space.
SPACED = {
    "plain": """
        It rained. | We stayed in.
        Is it true? | Yes! | It is.
        One sentence without an end
        He shouted: stop! | Nobody did.
    """,
    "titles": """
        Dr. Smith met Mr. and Mrs. Jones. | They talked.
        She asked Prof. Li about St. Petersburg. | He knew it well.
        Gen. Lee and Capt. Rogers left. | Col. Mustard stayed.
        The Rev. Martin Luther King Jr. spoke. | The crowd listened.
        Sen. Warren and Rep. Lewis voted. | Gov. Brown signed.
    """,
    "initials": """
        J. R. R. Tolkien wrote it. | C. S. Lewis read it.
        Ursula K. Le Guin lived in Portland. | She wrote there.
        George W. Bush met John F. Kennedy Jr. in Texas. | It was hot.
        It is rich in vitamin C. | However, it is sour.
        It was won by Harry S. Truman. | Nobody expected it.
        Plan B failed. | Plan C. S. Peirce would have liked.
    """,
    "acronyms": """
        He moved to the U.S. in 1990. | He stayed.
        He moved to the U.S. | He stayed there.
        The U.S. Army came at 5 p.m. on Monday. | It left at 9 a.m. | The town slept.
        She holds a Ph.D. in physics and an M.Sc. from Delft. | Both are old.
        They met in Washington, D.C. | It was May.
        The U.N. Security Council met. | The E.U. did not.
    """,
    "abbreviations": """
        Fruit, e.g. apples, is good. | So are nuts, i.e. almonds etc. in moderation.
        Apple Inc. was founded by Steve Jobs. | It grew.
        He works at Acme Corp. | The firm is old.
        See Smith et al. (2004) for more. | It is long.
        Smith v. Jones and Roe vs. Wade are cases. | Both are cited.
        It was built c. 1500 and burnt ca. 1600. | Nothing is left.
        See Fig. 3 and Eq. 4 on p. 17. | They differ.
        It appeared in vol. 2, no. 5, pp. 10-12. | It was short.
        On Jan. 5 they left. | On Sept. 7 they came back.
        The answer is no. | Then we go.
        He lives on Main St. near Mt. Hood. | It is quiet.
        They sell books, pens, etc. | The shop is small.
        Approx. 5 kg of salt, incl. packaging. | It is cheap.
    """,
    "numbers": """
        Pi is 3.14159 or so. | It never ends.
        It cost $3.50. | He paid £4.20.
        The war ended in 1945. | The town was rebuilt.
        Version 2.0.1 is out. | Version 2.1 is not.
        There were 12. | Now there are 3.
        1. Introduction to the matter
        It has 5 parts. | 2. Methods are next.
        It is 25.5 °C today. | Yesterday it was 1,000.5 hPa.
    """,
    "quotations": """
        "Stop!" she cried. | Nobody moved.
        He said, "I will go." | Then he left.
        “Where are you?” he asked. | “Here.” | She smiled.
        'It is late.' | 'I know.'
        (He left early.) | She stayed.
        He left (it was late). | She stayed.
        “It ends here.” | (It did not.)
        She wrote "The End." | And that was that.
        He asked "Why?" and left. | Nobody knew.
        They call it “the U.S.” in songs. | I do not.
        «Не знаю», — сказал он. | Потом ушёл.
        [It was so.] | Nobody denied it.
    """,
    "ellipsis": """
        Well... maybe. | Or not.
        I never meant that.... | She left the store.
        Wait… what? | Nothing.
        One habit . . . was never broken. | It stayed.
        Really?! | Yes!!!
    """,
    "names": """
        Yahoo! Inc. was sold. | Verizon paid.
        See example.com. | It works.
        Mail me at a.b@example.org. | I answer.
        Node.js and ASP.NET differ. | Both are used.
    """,
    "German": """
        Am 3. Oktober ist Feiertag. | Alle haben frei.
        Das gilt z.B. für Dr. Müller bzw. Frau Prof. Schmidt. | Er weiß es.
        Im 19. Jahrhundert war es so. | Heute nicht.
        Er kam um 8 Uhr. | Ach so!
        Die Fa. liefert ca. 20 Stück. | Das reicht.
    """,
    "French": """
        M. Dupont et Mme. Curie sont là. | Ils parlent.
        Où est-il ? | Il est parti !
        « Oui. » | Elle sourit.
    """,
    "Spanish": """
        ¿Qué hora es? | ¡Es tarde! | Vámonos.
        El Sr. García y la Sra. López viven aquí. | Son amigos.
        Llegó el Dr. Ruiz. | Después comimos.
    """,
    "Italian": """
        Il Sig. Rossi è qui. | Buongiorno!
        L'avv. Bianchi parla. | Tutti ascoltano.
    """,
    "Russian": """
        Он родился в 1900 г. в Москве. | Потом уехал.
        А. С. Пушкин — поэт. | Его знают все.
        Это т. е. пример. | Да!
    """,
    "Greek": """
        Τι κάνεις\u037e | Καλά είμαι.
    """,
    "Arabic": """
        كيف حالك؟ | أنا بخير. | شكرا!
    """,
    "Urdu": """
        یہ ایک جملہ ہے۔ | یہ دوسرا ہے۔
    """,
    "Armenian": """
        Սա նախադասություն է։ | Սա երկրորդն է։
    """,
    "Amharic": """
        ይህ ዓረፍተ ነገር ነው። | ይህ ሁለተኛው ነው።
    """,
    "Burmese": """
        ဒါကစာကြောင်းတစ်ကြောင်း။ | ဒါကနောက်တစ်ကြောင်း။
    """,
    "Khmer": """
        នេះជាប្រយោគ។ | នេះជាប្រយោគទីពីរ។
    """,
    "Hindi": """
        यह एक वाक्य है। | यह दूसरा है। | क्या यह तीसरा है?
    """,
    "Korean": """
        나는 학생이다. | 너는 누구니? | 좋아!
    """,
    "Hebrew": """
        זה משפט אחד. | האם זה שני? | כן!
    """,
}
UNSPACED = {
    "Chinese": """
        今天下雨。|我们在家。
        你好吗？|很好！|谢谢。
        他说：“我走了。”|然后他走了。
        圆周率是3.14。|它没有尽头。
        （他走了。）|她没走。
    """,
    "Japanese": """
        今日は雨です。|家にいます。
        「はい。」と言った。|それだけだ。
        本当ですか？|はい！
        値は３．１４である。|続く。
    """,
    "Hindi": """
        यह एक वाक्य है।|यह दूसरा है।
    """,
}


def cases(table: dict[str, str], space: str) -> list[object]:
    actual = []
    for kind, block in table.items():
        for line in filter(None, map(str.strip, block.split("\n"))):
            expected = [part.strip() for part in line.split("|")]
            actual.append(pytest.param(space.join(expected), expected, id=f"{kind}: {line[:30]}"))
    return actual


GOLDEN = cases(SPACED, " ") + cases(UNSPACED, "")


def test_golden_set_is_as_large_as_said() -> None:
    assert len(GOLDEN) >= 60


@pytest.mark.parametrize(("paragraph", "expected"), GOLDEN)
def test_golden(paragraph: str, expected: list[str]) -> None:
    assert split_sentences(paragraph) == expected


WORDS = [
    *"aBc. !?…。।؟۔\"'”)(「」と３．1",
    "Dr",
    "U.S",
    "etc",
    " The",
    " he",
    "\u00a0",
    "\t",
    "\u3000",
    "é",
    "« ",
    " »",
]
PROSE = st.lists(st.sampled_from(WORDS), max_size=40).map("".join)


@given(st.one_of(PROSE, st.text(max_size=60)))
@example("A.\u2028B")
@example(" . ")
@settings(max_examples=400, deadline=None)
def test_nothing_is_lost(paragraph: str) -> None:
    sentences = split_sentences(paragraph)
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


def test_no_sentence() -> None:
    assert split_sentences("") == []
    assert split_sentences(" \t\n") == []


@pytest.mark.parametrize(
    "unit",
    [". ", "a", "。", "。と", "! ", '."', "A. ", "Dr. ", "...", "’” ", " ", "。”", "a.\u3000と"],
)
def test_time_is_linear(unit: str) -> None:
    """A quarter of a million characters of the worst kinds, in seconds of CPU time."""
    began = time.process_time()
    split_sentences(unit * (250_000 // len(unit)))
    assert time.process_time() - began < 60
