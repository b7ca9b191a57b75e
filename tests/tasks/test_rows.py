"""Rows of tables: every kind of file gives the same rows, nothing is lost in silence, memory stays
bounded."""

import bz2
import contextlib
import csv
import gzip
import io
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litebert.data.bad_rows import BadRows, Location
from litebert.errors import ConfigError, DataError, LitebertError
from litebert.tasks.registry import OWN, TableOptions, open_task
from litebert.tasks.tables import rows
from litebert.tasks.tables.rows import read_rows
from tests.helpers.full_disk import full_disk

ROWS = [
    {"text": 'He said "no", twice.', "label": "a"},
    {"text": '"', "label": "b"},
    {"text": "今日は; é — \u2028 x", "label": "a b"},
]


def as_csv(table: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(table[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue().encode()


def as_tsv(table: list[dict[str, Any]]) -> bytes:
    return "".join(
        "\t".join(cells) + "\n" for cells in [list(table[0]), *(row.values() for row in table)]
    ).encode()


def as_jsonl(table: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table).encode()


def as_parquet(table: list[dict[str, Any]]) -> bytes:
    import pyarrow as arrow
    import pyarrow.parquet

    out = io.BytesIO()
    arrow.parquet.write_table(arrow.Table.from_pylist(table), out, row_group_size=2)
    return out.getvalue()


def zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.compress(data)


WRITERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    ".csv": as_csv, ".tsv": as_tsv, ".jsonl": as_jsonl, ".ndjson": as_jsonl, ".parquet": as_parquet,
}  # fmt: skip
PACKS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstd}


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def read(path: Path, **options: Any) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(path, bad=BadRows(**options))]


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("kind", WRITERS)
def test_every_kind_and_compression_gives_the_same_rows(
    tmp_path: Path, kind: str, pack: str
) -> None:
    assert read(write(tmp_path / f"a{kind}{pack}", PACKS[pack](WRITERS[kind](ROWS)))) == ROWS


@pytest.mark.parametrize(
    ("kind", "places"),
    [(".csv", "a.csv:2 a.csv:3 a.csv:4"), (".jsonl", "a.jsonl:1 a.jsonl:2 a.jsonl:3")],
)
def test_rows_know_their_place(tmp_path: Path, kind: str, places: str) -> None:
    path = write(tmp_path / f"a{kind}", WRITERS[kind](ROWS))
    assert [str(place) for place, _ in read_rows(path)] == places.split()


def test_plain_text_is_a_row_a_line_also_where_it_is_blank(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\n\n two\n")) == [
        {"text": "one"},
        {"text": ""},
        {"text": " two"},
    ]


def test_csv_with_a_mark_semicolons_line_feeds_and_blank_lines(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbftext ; label\r\n\r\n"one\r\ntwo; ""three""";a\r\nfour;b'
    path = write(tmp_path / "a.csv", data)
    assert [(str(place), row) for place, row in read_rows(path)] == [
        ("a.csv:3", {"text": 'one\ntwo; "three"', "label": "a"}),
        ("a.csv:5", {"text": "four", "label": "b"}),
    ]


@given(
    st.lists(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_characters="\r\0")), min_size=2, max_size=2
        ),
        max_size=6,
    )
)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_pythons_writer_wrote_is_read_back(tmp_path: Path, cells: list[list[str]]) -> None:
    table = [{"a": first, "b": second} for first, second in cells]
    path = write(tmp_path / "a.csv", as_csv([{"a": "", "b": ""}, *table]))
    assert read(path)[1:] == table


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", b"", r"a\.csv, line 1: the file is empty"),
        ("a.tsv", "a\tb\n1\t2\n".encode("utf-16")[:-1],
         r"line 2: the file is not utf-16 \(truncated data\); name another --encoding"),
        ("a.csv", b"a,b\n1,2,3\n",
         "line 2: the row has 3 fields, the header names 2; the separators do not fit"),
        ("a.csv", b'a,b\n1,2\n"3,4\n5,6\n',
         r"line 3: the row breaks CSV's rules \(unexpected end of data\); a quote that"),
        ("a.csv", b'a,b\n1,2\n"3"x,4\n',
         r"line 3: the row breaks CSV's rules \(',' expected after '\"'\)"),
        ("a.csv", b"a,b\n1,2\n3\xff,4\n",
         r"line 3: byte 0xff at byte 2 of the line is not UTF-8 \(invalid start byte\)"),
        ("a.csv", b"a,a\n1,2\n", "the header names the column 'a' more than once; give each"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', r"line 2: the row is not JSON"),
        ("a.jsonl", b"[" * 100_000, r"line 1: the row is not JSON"),
        ("a.jsonl", b"[1]\n",
         "line 1: the row is JSON of type list, expected an object with a field for each column"),
        ("a.tsv.gz", gzip.compress(b"a\tb\n" + b"1\t2\n" * 999, mtime=0)[:-9],
         "cannot be read further"),
        ("a.parquet", b"PAR1 no", r"a\.parquet, row 1: cannot be read further"),
        ("a.xls", b"",
         r"a\.xls: the name does not say what the file holds; expected \.csv, \.tsv, \.jsonl or "
         r"\.parquet"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / name, data))
    with pytest.raises(DataError, match=r"gone\.csv: cannot be opened \(No such file"):
        read(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("name", "data", "good"),
    [
        ("a.csv", b'a,b\n1,2\n"3"x,4\n5,6\n7\xff,8\n9\n0,1\n', ["1", "5", "0"]),
        ("a.csv", b'a,b\n1,2\n"3,4\n5,6\n', ["1"]),
        ("a.tsv", b"a\tb\n1\t2\n3\n4\xff\t5\n6\t7\n", ["1", "6"]),
        ("a.jsonl", b'{"a": "1"}\nx\n3\n\n{"a": "4"}', ["1", "4"]),
        ("a.tsv.gz", gzip.compress(b"a\tb\n" + b"1\t2\n" * 3, mtime=0)[:-4], ["1"] * 3),
    ],
)
def test_the_rest_is_read_where_bad_rows_are_left_out(
    tmp_path: Path, name: str, data: bytes, good: list[str]
) -> None:
    path = write(tmp_path / name, data)
    bad = BadRows("skip")
    assert [row["a"] for _, row in read_rows(path, bad=bad)] == good
    assert bad.count > 0
    assert bad.notes[0].startswith(f"{bad.count} bad row")


def test_a_row_over_several_lines_is_bad_as_a_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'a,b\n"1\n\xff\n1",2\n3,4\n')
    with pytest.raises(DataError, match=r"a\.csv, line 2: byte 0xff at byte 1 of the line"):
        read(path)
    assert read(path, policy="skip") == [{"a": "3", "b": "4"}]


@pytest.mark.parametrize("data", [b"a\xff,b\n1,2\n", b'"a"x,b\n1,2\n'])
def test_a_header_is_never_left_out(tmp_path: Path, data: bytes) -> None:
    """The first row would be taken for it."""
    with pytest.raises(DataError, match=r"a\.csv, line 1: .*; the header has to be readable"):
        read(write(tmp_path / "a.csv", data), policy="skip")


def test_texts_of_parquet_that_are_not_utf8(tmp_path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet

    column = arrow.StringArray.from_buffers(
        3, arrow.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), arrow.py_buffer(b"x\xffz")
    )
    arrow.parquet.write_table(arrow.table({"a": column}), tmp_path / "a.parquet")
    with pytest.raises(
        DataError, match=r"a\.parquet, row 2: a text is not UTF-8 \(invalid start byte\)"
    ):
        read(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", policy="skip") == [{"a": "x"}, {"a": "z"}]


def test_a_column_of_parquet_has_a_name_of_its_own(tmp_path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet

    arrow.parquet.write_table(arrow.table([["x"], ["y"]], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(
        DataError,
        match=r"a\.parquet names the column 'a' more than once; give each column a name of its own",
    ):
        read(tmp_path / "a.parquet", policy="skip")


def test_parquet_keeps_types_lists_and_categories(tmp_path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet

    labels = arrow.array(["a", None, "b"]).dictionary_encode()
    table = arrow.table(
        {"words": [["x"], [], None], "label": labels, "n": arrow.array([1, 2, 3], arrow.int16())}
    )
    arrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [
        {"words": ["x"], "label": "a", "n": 1}, {"words": [], "label": None, "n": 2},
        {"words": None, "label": "b", "n": 3},
    ]  # fmt: skip


def test_the_quarantine_holds_the_rows_and_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'a,b\n1,2\n3\n"4"x,5\n6\xff,7\n')
    kept = tmp_path / "kept.jsonl"
    with BadRows("quarantine", kept) as bad:
        assert len(list(read_rows(path, bad=bad))) == 1
        assert not kept.exists()
    record = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(row["line"], row.get("row") or row["row_base64"]) for row in record] == [
        (3, "3"),
        (4, '"4"x,5'),
        (5, "Nv8sNw=="),
    ]
    assert {row["file"] for row in record} == {str(path)}
    assert bad.notes[0].startswith(
        f"3 bad rows were left out, kept in {kept}; the first: {path}, line 3: the row has 1 fields"
    )
    with contextlib.suppress(KeyError), BadRows("quarantine", tmp_path / "other.jsonl") as bad:
        list(read_rows(path, bad=bad))
        raise KeyError
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.csv", "kept.jsonl"]


def test_a_users_file_is_no_quarantine(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"a,b\n1\n2\n")
    for content in (b"mine\n", b'{"file": "x"}\n', b""):
        mine = write(tmp_path / "quarantine.jsonl", content)
        with pytest.raises(DataError, match="exists and is not a quarantine file of litebert"):
            read(path, policy="quarantine", quarantine=mine)
        assert mine.read_bytes() == content
    with pytest.raises(ConfigError, match="no file for them is named; add --quarantine FILE"):
        BadRows("quarantine")
    kept = tmp_path / "kept.jsonl"
    for _ in range(2):  # its own file is replaced by the next reading
        with BadRows("quarantine", kept) as bad:
            list(read_rows(path, bad=bad))
        assert len(kept.read_text().splitlines()) == 2


def test_a_disk_that_is_full_at_the_end_of_a_quarantine(tmp_path: Path) -> None:
    bad = BadRows("quarantine", tmp_path / "kept.jsonl")
    bad.add(Location("a.tsv", 1), "reason", "row")  # waits in a buffer
    with (
        full_disk(),
        pytest.raises(DataError, match=r"kept\.jsonl: bad rows .* \(File too large\)"),
    ):
        bad.close()
    assert not list(tmp_path.iterdir())
    bad.close()


def test_a_quarantine_that_cannot_be_written(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"a,b\n1\n2\n")
    with BadRows("quarantine", tmp_path / "new/folder/kept.jsonl") as bad:
        assert list(read_rows(path, bad=bad)) == []
    assert len((tmp_path / "new/folder/kept.jsonl").read_text().splitlines()) == 2
    with pytest.raises(
        DataError,
        match=r"a\.csv/kept\.jsonl: bad rows cannot be written there \(.*\); make room, or name",
    ):
        read(path, policy="quarantine", quarantine=path / "kept.jsonl")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.csv.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    table = [{"text": f"{number} " + "x" * 400, "label": "a"} for number in range(20_000)]
    kind = ".jsonl" if "jsonl" in name else name[1:5]
    data = WRITERS[kind](table)
    path = write(tmp_path / name, gzip.compress(data, 1) if name.endswith(".gz") else data)
    del table, data
    tracemalloc.start()
    assert sum(1 for _ in read_rows(path)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e6  # the file has 8.3 MB


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_an_endless_line_is_passed_over_in_bounded_memory(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 2**20)
    good = WRITERS[name[1:]](ROWS)
    path = write(
        tmp_path / name, good + b"x" * 20_000_000 + b"\n" + good.splitlines(keepends=True)[-1]
    )
    bad = BadRows("skip")
    tracemalloc.start()
    actual = [row for _, row in read_rows(path, bad=bad)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert actual == [*ROWS, ROWS[-1]]
    assert (bad.count, peak < 8e6) == (1, True)
    assert "the line is longer than" in bad.first


def test_an_endless_quote_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_ROW_BYTES", 2**18)
    path = write(tmp_path / "a.csv", b'a,b\n1,2\n"' + b"3,4\n" * 400_000)
    tracemalloc.start()
    with pytest.raises(
        DataError,
        match=r"line 3: the row breaks CSV's rules \(field larger than field limit \(262144\)\)",
    ):
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    csv.field_size_limit(2**17)
    assert peak < 8e6  # csv takes four bytes a character, and twice while it grows


@given(
    st.sampled_from([*WRITERS, ".json"]),
    st.sampled_from(OWN),
    st.binary(max_size=200),
    st.booleans(),
    st.integers(0, 400),
)
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_bytes_make_anything_but_a_clear_error(
    tmp_path: Path, kind: str, task: str, noise: bytes, whole: bool, place: int
) -> None:
    """Noise alone, and noise inside a good file."""
    good = WRITERS.get(kind, as_jsonl)(ROWS)
    data = noise if whole else good[: place % len(good)] + noise[:20] + good[place % len(good) :]
    path = write(tmp_path / f"a{kind}", data)
    for policy in ("error", "skip"):
        with contextlib.suppress(LitebertError):
            open_task(task, path, options=TableOptions(bad_rows=policy))  # type: ignore[arg-type]
