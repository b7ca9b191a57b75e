"""Records of a CSV file (RFC 4180): a path in; fields with their place out, each record whole or
with what is wrong with it."""

import csv
from collections.abc import Iterator

from litebert.data.pieces import MAX_ROW_BYTES
from litebert.tasks.tables.bad_rows import BadRows, Place
from litebert.tasks.tables.lines import Line, Record, decoded_lines


def csv_records(path: str, bad: BadRows) -> Iterator[Record]:
    """All records of a CSV file, the header's among them."""
    csv.field_size_limit(MAX_ROW_BYTES)  # Python's own limit, 128 KiB, is less than a long document
    source = _Source(decoded_lines(path, bad))
    reader = csv.reader(source, delimiter=source.separator(), strict=True)
    while True:
        source.begin()
        wrong, fields = "", list[str]()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            wrong = f"the row breaks CSV's rules ({error}); a quote that is opened must be closed, one inside is doubled"
        wrong = source.wrong or wrong
        if fields or wrong:
            yield Record(source.place or Place(path, 1), fields, bytes(source.raw), wrong)


class _Source:
    """Lines for csv.reader; it remembers the present record: where it began, what it was, what was
    wrong."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self._ahead: Line | None = None
        self.begin()

    def begin(self) -> None:
        self.place: Place | None = None
        self.raw = bytearray()
        self.wrong = ""

    def separator(self) -> str:
        """A comma; a semicolon where the header has those alone, as spreadsheets write in much of
        Europe."""
        self._ahead = next(self._lines, None)
        header = self._ahead.text if self._ahead else ""
        return ";" if ";" in header and "," not in header else ","

    def __iter__(self) -> "_Source":
        return self

    def __next__(self) -> str:
        line = self._ahead or next(self._lines)
        self._ahead = None
        self.raw += line.raw if self.place is None else b"\n" + line.raw
        self.place = self.place or line.place
        self.wrong = self.wrong or line.wrong
        return line.text + "\n"
