"""Learning a vocabulary: the paper's layout, the same bytes each time, nothing lost, and errors
that say what to do."""

import errno
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from litebert.commands.tokenizer import train
from litebert.errors import ConfigError, DataError
from litebert.files import Lock
from litebert.text.normalize import TextRules
from litebert.text.tokenizer import Tokenizer
from litebert.text.train import VocabularyConfig, _cut, measure, train_tokenizer
from tests.helpers.text import made_lines


def test_layout_is_the_papers() -> None:
    assert VocabularyConfig().vocab_size == 30_000
    assert VocabularyConfig().character_coverage == 0.99995
    tokenizer, report = train_tokenizer(made_lines(), VocabularyConfig(vocab_size=150))
    assert tokenizer.tokens[:13] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.–£€']
    assert not any(symbol in token for token in tokenizer.tokens[13:] for symbol in '()"-.–£€')
    assert (report.vocab_size, report.num_lines, report.num_held_out) == (150, 1485, 15)
    assert report.coverage == 1
    assert report.unknown_rate == 0
    assert 1 < report.tokens_per_word < 3


def test_same_lines_same_bytes() -> None:
    config = VocabularyConfig(vocab_size=150)
    first, second = (train_tokenizer(iter(made_lines()), config)[0] for _ in range(2))
    assert first.model == second.model
    sampled = VocabularyConfig(vocab_size=120, max_lines=500, seed=3)
    first, second = (train_tokenizer(iter(made_lines()), sampled)[0] for _ in range(2))
    assert first.model == second.model


def test_switches_reach_the_tokens() -> None:
    lines = made_lines()
    cased = train_tokenizer(
        lines, VocabularyConfig(vocab_size=130, rules=TextRules(lowercase=False, keep_accents=True))
    )[0]
    assert "▁Café" in cased.tokens
    assert cased.rules == TextRules(lowercase=False, keep_accents=True)
    other = train_tokenizer(lines, VocabularyConfig(vocab_size=120, symbols=("sailor", "%")))[0]
    assert other.tokens[5:7] == ["sailor", "%"]
    few = train_tokenizer(
        [*lines, "Ωmega"], VocabularyConfig(vocab_size=100, character_coverage=0.99)
    )[0]
    assert "ω" not in few.tokens


def test_report_counts_unknown_characters(tokenizer: Tokenizer) -> None:
    report = measure(tokenizer, ["the ☃☃ the", "☃the"])
    assert report.coverage == pytest.approx(1 - 3 / 12)
    assert report.tokens_per_word == pytest.approx(7 / 4)  # ▁the ▁ ☃☃ ▁the · ▁ ☃ the
    assert report.unknown_rate == pytest.approx(2 / 7)


def test_a_short_corpus_is_measured_on_itself() -> None:
    report = train_tokenizer(made_lines(40), VocabularyConfig(vocab_size=60))[1]
    assert (report.num_lines, report.num_held_out) == (40, 0)
    assert report.tokens_per_word > 1


@pytest.mark.parametrize("line", ["word " * 5000, "x" * 9000, "ж" * 9000, "short"])
def test_long_lines_are_cut_and_not_lost(line: str) -> None:
    parts = list(_cut(line.strip()))
    assert max(len(part.encode()) for part in parts) <= 4192
    assert "".join(parts).replace(" ", "") == line.replace(" ", "")


def test_cutting_takes_time_linear_in_the_length() -> None:
    """In seconds of CPU time; a copy of the rest at every cut would take a minute."""
    began = time.process_time()
    assert sum(map(len, _cut("ä" * 16_000_000))) == 16_000_000
    assert time.process_time() - began < 10


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ConfigError, match="vocab_size is at most 524,288; got 600,000"):
        VocabularyConfig(vocab_size=600_000)
    with pytest.raises(
        DataError,
        match=(
            r"yields at most \d+ tokens, 30000 were requested; give more text, or a vocab size "
            r"of"
        ),
    ):
        train_tokenizer(made_lines(100))
    with pytest.raises(
        DataError, match=r"needs at least \d+ tokens, 20 were requested; raise the vocab size"
    ):
        train_tokenizer(made_lines(100), VocabularyConfig(vocab_size=20))
    for nothing in ([], ["", "  "]):
        with pytest.raises(DataError, match="no text to learn a vocabulary from"):
            train_tokenizer(nothing, VocabularyConfig(vocab_size=50))
    with pytest.raises(ConfigError, match="vocab_size is 3, but the special tokens"):
        VocabularyConfig(vocab_size=3)
    with pytest.raises(ConfigError, match=r"character_coverage is 1\.5"):
        VocabularyConfig(character_coverage=1.5)
    for few in (0, 100):
        with pytest.raises(
            ConfigError, match=f"max_lines is {few} and seed 0, expected at least 101 and 0"
        ):
            VocabularyConfig(max_lines=few)
    assert (
        train_tokenizer(made_lines(), VocabularyConfig(vocab_size=100, max_lines=101))[0].vocab_size
        == 100
    )


def test_the_corpus_readers_own_error_comes_through() -> None:
    def lines() -> Iterator[str]:
        yield "one line"
        raise DataError("line 2 is not text")

    with pytest.raises(DataError, match=r"^line 2 is not text$"):
        train_tokenizer(lines(), VocabularyConfig(vocab_size=50))


def test_a_bad_row_names_only_what_this_command_can_do(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\xff\n")
    with pytest.raises(
        DataError, match=r"line 1: byte 0xff .*; fix it, or leave it out with --bad-rows skip$"
    ):
        train((str(tmp_path / "a.txt"),), out=str(tmp_path / "t"))


def test_a_folder_that_cannot_be_written_is_refused_before_the_corpus_is_read() -> None:
    with pytest.raises(DataError, match=r"cannot be written to /dev/fd .*; give another folder"):
        train(("nowhere.txt",), out="/dev/fd")


def test_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n\n".join(made_lines()), encoding="utf-8")
    train((str(corpus),), out=str(tmp_path / "t"), vocab_size=150, language="en", json=True)
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert report["vocab_size"] == 150
    assert report["fingerprint"] == Tokenizer.load(tmp_path / "t").fingerprint
    assert len(err.splitlines()) == 1  # SentencePiece's own log stays away
    assert report["rules"] == asdict(TextRules())
    train((str(corpus),), out=str(tmp_path / "u"), vocab_size=150, keep_accents=True)
    assert "coverage         100.0000% of characters" in capfd.readouterr().out
    assert Tokenizer.load(tmp_path / "u").rules == TextRules(keep_accents=True)
    train((str(corpus),), out=str(tmp_path / "w"), vocab_size=120, max_lines=300)
    assert "120 tokens from 300 of 1,485 lines" in capfd.readouterr().out
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "\n".join(json.dumps({"body": line}) for line in made_lines()) + '\n{"body": 3}\n',
        encoding="utf-8",
    )
    train(
        (str(rows),),
        out=str(tmp_path / "v"),
        vocab_size=150,
        field="body",
        bad_rows="skip",
        json=True,
    )
    assert "1 bad rows left out, the first: " in capfd.readouterr().err


def test_a_new_tokenizer_replaces_the_old_one_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (
        train_tokenizer(made_lines(), VocabularyConfig(vocab_size=size, rules=rules))[0]
        for size, rules in ((120, TextRules()), (130, TextRules(lowercase=False)))
    )
    folder = tmp_path / "tokenizer"
    first.save(folder)
    (folder / "notes.txt").write_text("mine")

    def full(path: Path, content: bytes | str) -> None:
        if path.name == "spiece.model":
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with monkeypatch.context() as patched:
        patched.setattr("litebert.text.tokenizer.write_file", full)
        with pytest.raises(DataError, match="cannot be written"):
            second.save(folder)
    assert Tokenizer.load(folder).fingerprint == first.fingerprint
    folder.chmod(0o750)
    (folder / "link").symlink_to("notes.txt")
    with (folder / "notes.txt").open("a") as still_open:
        second.save(folder)
        still_open.write(", and more")
    assert Tokenizer.load(folder).fingerprint == second.fingerprint
    assert (folder / "link").is_symlink()
    assert (folder / "link").read_text() == "mine, and more"
    assert folder.stat().st_mode & 0o777 == 0o750
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer"]


def test_two_trainings_in_one_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join(made_lines()))
    (tmp_path / "out").mkdir()
    with (
        Lock(tmp_path / "out"),
        pytest.raises(DataError, match="another process is writing a tokenizer to"),
    ):
        train((str(tmp_path / "corpus.txt"),), out=str(tmp_path / "out"), vocab_size=120)
    train((str(tmp_path / "corpus.txt"),), out=str(tmp_path / "out"), vocab_size=120)
