"""Rules by language: which letters are one, what a sample of text tells, and that a tokenizer keeps
them."""

import json
import unicodedata
from dataclasses import asdict
from itertools import permutations
from pathlib import Path

import pytest

from litebert import cli
from litebert.errors import ConfigError, DataError
from litebert.text.languages import detect, language_of, rules_of
from litebert.text.normalize import TextRules, clean
from litebert.text.tokenizer import Tokenizer
from litebert.text.train import VocabularyConfig, train_tokenizer
from tests.helpers.text import made_lines

TURKISH = "çocuklar ılık sütü içti ve güldü; kız ağacın altında İzmir'i anlattı"
FRENCH = "la forêt où l'élève a mangé une pêche près de la côte, à l'été"
GREEK = "ο δρόμος προς την πόλη είναι μακρύς και το βράδυ έρχεται"
GERMAN = "die Straße war schon schön, und über dem Fluß lag ein großer Nebel"
AZERBAIJANI = "mən kəndə gedirəm, qızıl alma ağacı həyətdə böyüyür, ılıq külək əsir"
ENGLISH = "the ship sails to the old harbor and the captain sings for you"


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        ("tr", "ILIK İzmir I\u0307ZM\u0130R IŞIK", "ılık izmir izmir ışık"),
        ("az", "QIZIL İLİ", "qızıl ili"),
        ("de", "STRASSE Straße ẞ ÄÖÜ", "strasse straße ß äöü"),
        ("el", "ΟΔΟΣ ΣΑΣ Ά", "οδος σας ά"),
        ("fr", "L'ÉTÉ À LA FORÊT", "l'été à la forêt"),
        ("lt", "ŽĄSIS ĮĖJO", "žąsis įėjo"),
        ("other", "ŁÓDŹ", "łódź"),
        ("en", "Café İ", "cafe i"),
    ],
)
def test_letters_that_are_one_become_one(code: str, text: str, expected: str) -> None:
    assert clean(text, rules_of(language_of(code))) == expected


MARKS = "\u0307\u0323\u0328\u0302"  # dot above, dot below, ogonek, circumflex


@pytest.mark.parametrize("letter", ["I", "İ", "Ị", "Į", "Î", "i"])
@pytest.mark.parametrize("keep_accents", [True, False])
def test_turkish_text_lowers_alike_composed_and_decomposed(letter: str, keep_accents: bool) -> None:
    rules = rules_of(language_of("tr"), keep_accents=keep_accents)
    for count in range(4):
        for marks in permutations(MARKS, count):
            text = f"a{letter}{''.join(marks)}b I İ"
            lowered = {
                unicodedata.normalize("NFC", clean(unicodedata.normalize(form, text), rules))
                for form in ("NFC", "NFD")
            } | {unicodedata.normalize("NFC", clean(text, rules))}
            assert len(lowered) == 1, ascii(text)
    assert clean("I\u0323\u0307 MİLLÎ MI\u0302", rules) == (
        "i\u0323 millî mi\u0302" if keep_accents else "i milli mi"
    )


def test_what_the_user_says_about_accents_and_case_wins() -> None:
    turkish = language_of("tr")
    assert clean("ILIK İçti", rules_of(turkish, keep_accents=False)) == "ılık icti"
    assert clean("ILIK İçti", rules_of(turkish, lowercase=False)) == "ILIK İçti"
    assert clean("Été", rules_of(language_of("en"), keep_accents=True)) == "été"
    assert rules_of(language_of("en")) == TextRules()
    with pytest.raises(ConfigError, match=r"there is no language 'turkish'; .*known: en, tr, az"):
        language_of("turkish")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (TURKISH, "tr"),
        (AZERBAIJANI, "az"),
        (FRENCH, "other"),
        (GREEK, "other"),
        (GERMAN, "other"),
        (ENGLISH, "en"),
        ("", "other"),
        ("12 + 34", "other"),
    ],
)
def test_a_sample_of_text_tells_the_language(text: str, code: str) -> None:
    detected = detect([text] * 3)
    assert detected.code == code
    assert "% of its " in detected.evidence


def test_detection_reads_a_sample_of_a_long_text() -> None:
    lines = iter([ENGLISH] * 20_000)
    assert detect(lines).code == "en"
    assert len(list(lines)) > 5_000


def test_a_tokenizer_keeps_its_rules(tmp_path: Path) -> None:
    """Of upper and lower case the same ids, and of words that differ by a mark others, also in the
    tokenizer.json for Hugging Face."""
    tokenizers = pytest.importorskip("tokenizers")
    lines = [f"{TURKISH} {line}" for line in made_lines(300)]
    rules = rules_of(language_of("tr"))
    tokenizer, _ = train_tokenizer(lines, VocabularyConfig(vocab_size=150, rules=rules))
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.rules == rules
    assert loaded.fingerprint == tokenizer.fingerprint
    assert (
        loaded.fingerprint != Tokenizer(tokenizer.model, TextRules(keep_accents=True)).fingerprint
    )
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for upper, lower in (("ILIK", "ılık"), ("İzmir", "izmir"), ("GÜLDÜ", "güldü")):
        assert loaded.encode(upper) == loaded.encode(lower)
        assert theirs.encode(upper, add_special_tokens=False).ids == loaded.encode(lower)
    assert loaded.encode("çocuklar güldü") != loaded.encode("cocuklar guldu")
    assert loaded.encode("ılık") != loaded.encode("ilik")


def test_tokenizers_from_before_load_unchanged(tmp_path: Path) -> None:
    """The fingerprint is in every shard and every snapshot."""
    tokenizer, _ = train_tokenizer(
        made_lines(300), VocabularyConfig(vocab_size=100, rules=TextRules(keep_accents=True))
    )
    tokenizer.save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del config["dotless_i"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    before = Tokenizer.load(tmp_path)
    assert before.rules == TextRules(keep_accents=True)
    assert before.fingerprint == tokenizer.fingerprint
    config["dotless_i"] = 1
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match="dotless_i is 1, expected true or false"):
        Tokenizer.load(tmp_path)


def test_the_command_prints_its_choice_and_takes_another(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n\n".join(f"{TURKISH} {line}" for line in made_lines(200)))
    out = tmp_path / "tokenizer"
    command = ["tokenizer", "train", str(corpus), "--vocab-size", "120", "--out", str(out)]
    assert cli.run(command) == 0
    shown = capfd.readouterr().err
    assert "the text is Turkish (" in shown
    assert "accents are kept, I is lowercased to ı and İ to i; --language CODE" in shown
    assert Tokenizer.load(out).rules == TextRules(keep_accents=True, dotless_i=True)
    assert cli.run(command) == 2
    assert "spiece.model, tokenizer_config.json, tokenizer.json already" in capfd.readouterr().err
    command.append("--overwrite")
    assert cli.run([*command, "--language", "en", "--json"]) == 0
    shown, notes = capfd.readouterr()
    assert json.loads(shown)["rules"] == asdict(TextRules())
    assert "the text is" not in notes
    assert cli.run([*command, "--language", "de", "--no-keep-accents"]) == 0
    assert Tokenizer.load(out).rules == TextRules()
    assert cli.run([*command, "--language", "en", "--keep-accents"]) == 0
    assert Tokenizer.load(out).rules == TextRules(keep_accents=True)
    assert cli.run([*command, "--language", "xx"]) == 2


def test_stages_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litebert.text.train._STAGE_SECONDS", 0.001)
    stages: list[str] = []
    train_tokenizer(made_lines(300), VocabularyConfig(vocab_size=100), on_progress=stages.append)
    assert stages[0] == "reading, 1 lines"
    assert "learning from 297 lines" in stages
