"""Tables that are not UTF-8: recognized where that is safe, named by the user elsewhere, and
never a silent loss of rows."""

import csv
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
    with pytest.raises(DataError, match=r"the file is not ascii .*; name another --encoding"):
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
