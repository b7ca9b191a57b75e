"""Tables that are not UTF-8: recognized where that is safe, named by the user elsewhere, and
never a silent loss of rows."""

import csv
import gzip
from pathlib import Path

import pytest

from litebert.data.bad_rows import BadRows
from litebert.errors import ConfigError, DataError
from litebert.tasks.registry import open_task
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.rows import read_rows

MAILS = [
    ("Können Sie mir bitte die Rechnung für März schicken? Viele Grüße", "Rechnung"),
    ("Das Gerät lässt sich nicht einschalten – was muss ich prüfen?", "Technik"),
    ("Ich möchte meinen Vertrag zum nächsten Monat kündigen.", "Vertrag"),
    ("Der Betrag von 25 € wurde doppelt abgebucht, „Ihr Service“ antwortet nicht.", "Rechnung"),
    ("Thanks, all good.", "Vertrag"),
]
ROWS = [(f"{text} Nr. {number}", label) for number in range(80) for text, label in MAILS]


def write_mails(folder: Path, encoding: str, suffix: str = ".csv") -> Path:
    path = folder / f"mails{suffix}"
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",")
        writer.writerows([("text", "label"), *ROWS])
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_german_mail_is_read_in_full(tmp_path: Path, encoding: str, suffix: str) -> None:
    data = open_task("classify", write_mails(tmp_path, encoding, suffix))
    texts = {example.first for split in data.splits.values() for example in split}  # type: ignore[union-attr]
    assert texts == {text for text, _ in ROWS}
    guesses = [note for note in data.notes if "it is read as cp1252, a guess" in note]
    assert len(guesses) == (encoding == "cp1252")


def test_another_encoding_is_named_by_the_user(tmp_path: Path) -> None:
    path = tmp_path / "russian.txt"
    lines = ["Добрый день", "Спасибо за ответ", "До свидания", "plain"] * 5
    path.write_text("\n".join(lines), encoding="cp1251")
    assert [row["text"] for _, row in read_rows(path, encoding="cp1251")] == lines
    with pytest.raises(DataError, match=r"is not UTF-8 \(.*\); convert a file .* encoding; fix it"):
        list(read_rows(path))
    with pytest.raises(DataError, match=r"in another encoding, or name it with --encoding; fix it"):
        list(read_rows(path, encoding="auto"))
    with pytest.raises(DataError, match=r"is not ascii .*, or name it with --encoding; fix it"):
        list(read_rows(path, encoding="ascii"))
    with pytest.raises(ConfigError, match="there is no text encoding 'latin-99'; usual ones are"):
        TableOptions(encoding="latin-99")


def test_a_few_damaged_lines_are_no_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    good, damaged = ["Grüße aus Köln".encode()] * 100, [b"Gr\xfc\xdfe"] * 4
    path.write_bytes(b"\n".join([*good, *damaged]))
    bad = BadRows("skip")
    assert len(list(read_rows(path, bad=bad))) == 100
    assert (bad.count, bad.reading_notes) == (4, [])


def test_a_byte_that_the_encoding_does_not_have_costs_its_line_alone(tmp_path: Path) -> None:
    path = write_mails(tmp_path, "cp1252", ".tsv")
    lines = path.read_bytes().splitlines(keepends=True) * 20  # beyond what is guessed from
    lines[7_000] = "quoted “in UTF-8”\tVertrag\r\n".encode()
    path.write_bytes(b"".join(lines))
    bad = BadRows("skip")
    assert len(list(read_rows(path, bad=bad))) == len(lines) - 2
    assert bad.count == 1
    assert "line 7001: byte 0x9d at byte " in bad.first
    bad.check_share(len(lines), 0.1)


def test_a_table_that_breaks_off_is_not_cut_silently(tmp_path: Path) -> None:
    packed = gzip.compress(write_mails(tmp_path, "utf-8").read_bytes())
    path = tmp_path / "half.csv.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match=r"all that follows would be left out: .*--max-bad-rows 1$"):
        open_task("classify", path, options=TableOptions(bad_rows="skip"))
    data = open_task("classify", path, options=TableOptions(bad_rows="skip", max_bad_rows=1))
    assert 10 < sum(map(len, data.splits.values())) < 400


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        ("utf-16", r"is not utf-16 \(.*BOM\); name another --encoding, .* such as utf-16-le"),
        ("punycode", r"is not punycode \(.*\); name another --encoding"),
    ],
)
def test_a_wrong_encoding_is_named(encoding: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("Grüße aus Köln\n".encode("utf-16-le"))
    with pytest.raises(DataError, match=message):
        list(read_rows(path, encoding=encoding))
    assert [row["text"] for _, row in read_rows(path, encoding="utf-16-le")] == ["Grüße aus Köln"]


@pytest.mark.parametrize("policy", ["skip", "quarantine"])
def test_more_than_a_tenth_of_the_rows_is_not_left_out(tmp_path: Path, policy: str) -> None:
    path = write_mails(tmp_path, "cp1252")
    lost: dict[str, object] = {"bad_rows": policy, "quarantine": str(tmp_path / "q.jsonl")}
    lost |= {"encoding": "utf-8"}
    with pytest.raises(
        DataError, match=r"320 of 400 rows would be left out, more than 10%.*--max-bad-rows 1$"
    ):
        open_task("classify", path, options=TableOptions(**lost))  # type: ignore[arg-type]
    options = TableOptions(**lost, max_bad_rows=1)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the only label is"):  # all that is left is "Vertrag"
        open_task("classify", path, options=options)


@pytest.mark.parametrize("task", ["classify", "sst2"])
def test_the_rows_of_each_split_are_counted_on_their_own(task: str, tmp_path: Path) -> None:
    column = "label" if task == "classify" else "sentence"
    good = [f"good film {number}\t{number % 2}" for number in range(1000)]
    bad = [f"bad\x00\tfilm\t{number}" for number in range(90)]
    for split, lines in (("train", good), ("dev", good[:10] + bad)):
        header = "text\tlabel" if column == "label" else "sentence\tlabel"
        (tmp_path / f"{split}.tsv").write_text("\n".join([header, *lines]))
    with pytest.raises(DataError, match=r"90 of 100 rows would .*; the first: .*dev\.tsv, line 12"):
        open_task(task, tmp_path, options=TableOptions(bad_rows="skip"))
