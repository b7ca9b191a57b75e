"""Reading a corpus: every kind and compression gives the same documents, and whatever is wrong is
told with its place."""

import bz2
import gzip
import io
import json
import lzma
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from litebert.data import unpack
from litebert.data.bad_rows import BadRow
from litebert.data.chunks import find_files, ignored_files
from litebert.data.corpus import CorpusOptions, read_documents
from litebert.errors import ConfigError, DataError, MissingExtraError

DOCUMENTS = [
    ["One two. Three.", "Second paragraph — é."],
    ["Another document."],
    ["今日は雨です。", "end"],
]
TEXT = "\n\n".join("\n".join(paragraphs) for paragraphs in DOCUMENTS) + "\n"
JSONL = "".join(
    json.dumps({"id": number, "text": "\n".join(each)}) + "\n"
    for number, each in enumerate(DOCUMENTS)
)
Pack = Callable[[bytes], bytes]


def zstd(data: bytes) -> bytes:
    import zstandard

    half = len(data) // 2  # two frames, as `cat a.zst b.zst` makes them
    return zstandard.compress(data[:half]) + zstandard.compress(data[half:])


def parquet() -> bytes:
    import pyarrow as arrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    texts = ["\n".join(each) for each in DOCUMENTS]
    arrow.parquet.write_table(
        arrow.table({"id": [1, 2, 3], "text": texts}), buffer, row_group_size=2
    )
    return buffer.getvalue()


PACKS: dict[str, Pack] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstd,
}


def texts(*paths: Path, **options: object) -> list[list[str]]:
    """Paragraphs of whole documents."""
    actual: list[list[str]] = []
    for document in read_documents(paths, CorpusOptions(**options)):  # type: ignore[arg-type]
        if document.joined:
            actual[-1] += document.paragraphs
        else:
            actual.append(document.paragraphs)
    return actual


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize("suffix", PACKS)
@pytest.mark.parametrize("kind", [".txt", ".jsonl", ".parquet"])
def test_every_kind_and_compression_reads_alike(tmp_path: Path, kind: str, suffix: str) -> None:
    data = {".txt": TEXT.encode(), ".jsonl": JSONL.encode()}.get(kind) or parquet()
    path = write(tmp_path / f"corpus{kind}{suffix}", PACKS[suffix](data))
    assert texts(path) == DOCUMENTS


def test_documents_know_their_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\n\nx\ny\n\n\nz\n")
    actual = list(read_documents([path]))
    assert [(document.line, document.paragraphs) for document in actual] == [
        (3, ["x", "y"]),
        (7, ["z"]),
    ]
    assert {document.path for document in actual} == {str(path)}


def test_a_file_may_be_one_document(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "x\n\ny\n")
    write(tmp_path / "b.txt", "z")
    assert texts(tmp_path, documents="files") == [["x", "y"], ["z"]]
    assert texts(tmp_path, documents="files", chunk_bytes=16) == [["x", "y"], ["z"]]


def test_another_field(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"body": "x", "text": "no"}\n')
    assert texts(path, field="body") == [["x"]]


@given(st.lists(st.text("ab \n.é。", max_size=40), max_size=12), st.integers(16, 80))
@example(["a" * 100], 16)
@example(["\u3000" * 30, "b"], 17)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_chunk_size_changes_no_text(tmp_path: Path, parts: list[str], chunk_bytes: int) -> None:
    """Also of lines longer than a piece: nothing is lost, whole lines and documents stay whole."""
    path = write(tmp_path / "a.txt", "\n\n".join(parts) + "\n")
    whole, cut = texts(path), texts(path, chunk_bytes=chunk_bytes)
    assert "".join(map("".join, whole)).replace(" ", "") == "".join(map("".join, cut)).replace(
        " ", ""
    )
    if all(len(line.encode()) < chunk_bytes // 2 for line in "\n".join(parts).split("\n")):
        assert whole == cut


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (
            "a.txt",
            b"fine\nb\xffd\n",
            r"a\.txt, line 2: byte 0xff at byte 2 of the line is not UTF-8 .*--bad-rows skip",
        ),
        ("a.txt", b"fine\n\nx\0y\n", r"line 3: there is a NUL character at column 2"),
        ("a.txt", b"", r"a\.txt, line 1: the file is empty"),
        (
            "a.txt",
            "é".encode("utf-16"),
            r"line 1: the file is UTF-16, expected UTF-8; convert it with: iconv",
        ),
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', r"a\.jsonl, line 2: the row is not JSON"),
        (
            "a.jsonl",
            b'{"body": "x", "z": 1}\n',
            r"line 1: the row has no field 'text'; it has: body, z",
        ),
        ("a.jsonl", b'{"text": null}\n', r"line 1: the field 'text' is null"),
        ("a.jsonl", b'{"text": ["x"]}\n', r"the field 'text' holds list, expected text"),
        ("a.jsonl", b"[1]\n", r"JSON of type list, expected an object with a field 'text'"),
        ("a.jsonl", b'{"text": "\\u0000"}\n', r"holds a NUL character"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"holds half of a surrogate pair"),
        ("a.jsonl", b"[" * 100_000 + b"\n", r"the row is not JSON"),
        (
            "a.txt.gz",
            gzip.compress(b"x\n" * 5000, mtime=0)[:-9],
            r"line [45]\d\d\d: cannot be read further \(Compressed file ended",
        ),
        (
            "a.txt.xz",
            lzma.compress(os.urandom(9000).hex().encode())[:-40],
            r"line 1: cannot be read further",
        ),
        ("a.txt.bz2", bz2.compress(b"x\n" * 5000)[:-9], r"cannot be read further"),
        ("a.txt.zst", zstd(b"x\n" * 5000)[:-3], r"cannot be read further"),
        ("a.txt.gz", b"no gzip", r"line 1: cannot be read further \(Not a gzipped file"),
        ("a.txt.zst", b"no zstd at all", r"line 1: cannot be read further"),
        ("a.parquet", b"PAR1 but not really PAR1", r"line 1: cannot be read further"),
        ("a.parquet.gz", gzip.compress(b"no parquet", mtime=0), r"line 1: cannot be read further"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    path = write(tmp_path / name, data)
    with pytest.raises(DataError, match=message):
        texts(path)
    bad: list[BadRow] = []
    list(read_documents([path], CorpusOptions(bad_rows="skip"), on_bad=bad.append))
    assert len(bad) == 1


def test_what_comes_before_damage_is_kept(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.txt.gz",
        gzip.compress(b"one\n\ntwo\n" + os.urandom(50_000).hex().encode())[:-5000],
    )
    assert texts(path, bad_rows="skip")[0] == ["one"]


@pytest.mark.parametrize(
    ("suffix", "place"),
    [(".gz", 1), (".gz", 30), (".xz", 1), (".xz", 30), (".bz2", 1), (".bz2", 30), (".zst", 1)],
)
def test_damage_in_a_later_stream_is_no_end(tmp_path: Path, suffix: str, place: int) -> None:
    """Several streams, as `cat a.xz b.xz`, pbzip2 and Wikipedia's dumps make them: the first is
    read, the rest told."""
    later = bytearray(PACKS[suffix](os.urandom(300).hex().encode()))
    later[place] ^= 0xFF
    path = write(tmp_path / f"a.txt{suffix}", PACKS[suffix](b"one\n\ntwo\n\n") + bytes(later))
    with pytest.raises(DataError, match=r"a\.txt\.\w+, line \d: (cannot be read further|byte 0x)"):
        texts(path)
    assert texts(path, bad_rows="skip")[:2] == [["one"], ["two"]]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_zeros_between_streams_are_padding(tmp_path: Path, suffix: str) -> None:
    pack = PACKS[suffix]
    path = write(
        tmp_path / f"a.txt{suffix}", pack(b"one\n") + bytes(8) + pack(b"two\n") + bytes(70_000)
    )
    assert texts(path) == [["one", "two"]]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xef\xbb\xbfone\n", [["one"]]),
        (b"one\r\n\r\ntwo\r\n", [["one"], ["two"]]),
        (b"one\n \t \ntwo", [["one"], ["two"]]),
        ("one\u2028two\x0bthree\x85four\n".encode(), [["one\u2028two\x0bthree\x85four"]]),
    ],
)
def test_marks_of_other_systems(tmp_path: Path, data: bytes, expected: list[list[str]]) -> None:
    path = write(tmp_path / "a.txt", data)
    assert texts(path) == expected
    assert texts(path, chunk_bytes=16) == expected or len(data) > 16


def test_bad_lines_do_not_join_documents(tmp_path: Path) -> None:
    """The second document begins with bad lines that fill a whole piece."""
    path = write(
        tmp_path / "a.txt", b"first\n\n" + b"\xff" * 15 + b"\n" + b"\xff" * 15 + b"\nsecond\n"
    )
    assert texts(path, bad_rows="skip", chunk_bytes=16) == [["first"], ["second"]]


def test_a_row_may_be_too_long(tmp_path: Path) -> None:
    rows = ['{"text": "a"}', '{"text": "%s"}' % ("b" * 500), '{"text": "c"}']
    path = write(tmp_path / "a.jsonl", "\n".join(rows) + "\n")
    assert texts(path, chunk_bytes=32, max_row_bytes=600) == [["a"], ["b" * 500], ["c"]]
    with pytest.raises(
        DataError,
        match=r"line 2: the row is longer than 200 bytes; cut the document, or raise max_row_bytes",
    ):
        texts(path, chunk_bytes=32, max_row_bytes=200)
    assert texts(path, chunk_bytes=32, max_row_bytes=200, bad_rows="skip") == [["a"], ["c"]]


@pytest.mark.parametrize("end", ["\n", ""])
def test_the_longest_row_is_exact(tmp_path: Path, end: str) -> None:
    row = '{"text": "%s"}' % ("b" * 500)
    path = write(tmp_path / "a.jsonl", '{"text": "a"}\n' + row + end)
    assert texts(path, chunk_bytes=32, max_row_bytes=len(row)) == [["a"], ["b" * 500]]
    with pytest.raises(DataError, match=f"line 2: the row is longer than {len(row) - 1} bytes"):
        texts(path, chunk_bytes=32, max_row_bytes=len(row) - 1)


def test_a_line_of_40_mb_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        for _ in range(40):
            file.write(b"a word. " * 125_000)
    tracemalloc.start()
    size = sum(
        len(paragraph) for document in read_documents([path]) for paragraph in document.paragraphs
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 39_990_000 < size <= 40_000_000
    assert peak < 16 * 2**20


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "BOMB_BYTES", 2**20)
    path = write(tmp_path / "a.txt.gz", gzip.compress(b"a " * 2**22, mtime=0))
    with pytest.raises(
        DataError, match=r"unpacks to more than 200 times its \d+ bytes, which text does not"
    ):
        texts(path)


def test_parquet_columns(tmp_path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet

    def table(**columns: object) -> Path:
        arrow.parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
        return tmp_path / "a.parquet"

    with pytest.raises(DataError, match=r"line 1: there is no column 'text'; the file has: body"):
        texts(table(body=["x"]))
    with pytest.raises(DataError, match="the column 'text' holds int64, expected text"):
        texts(table(text=[1]))
    with pytest.raises(DataError, match="line 2: the column 'text' is null here"):
        texts(table(text=["x", None]))
    with pytest.raises(DataError, match="line 1: the file is empty"):
        texts(table(text=arrow.array([], arrow.string())))
    with pytest.raises(DataError, match="line 2: byte 0xff at byte 1"):
        texts(table(text=arrow.array([b"x", b"\xff"], arrow.binary())))
    assert texts(table(text=arrow.array(["x", "y"], arrow.large_string()))) == [["x"], ["y"]]
    assert texts(table(text=arrow.array(["x", "y"], arrow.string_view()))) == [["x"], ["y"]]
    assert texts(table(text=arrow.array([b"x", b"y"], arrow.binary_view()))) == [["x"], ["y"]]
    assert texts(table(text=arrow.array(["x", "y", "x"]).dictionary_encode())) == [
        ["x"],
        ["y"],
        ["x"],
    ]
    assert len(texts(table(text=["some text"] * 1000), chunk_bytes=64)) == 1000


def test_extras_are_named_when_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"litebert\[zstd\]"):
        texts(write(tmp_path / "a.txt.zst", b"x"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"litebert\[parquet\]"):
        texts(write(tmp_path / "a.parquet", b"x"))


def test_files_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.jsonl", "a.txt", "b.txt", ".hidden.txt", "b/.x/3.txt", "notes.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        write(tmp_path / name, "x")

    def names(*given: str) -> list[str]:
        return [
            Path(file.path).relative_to(tmp_path).as_posix()
            for file in find_files([tmp_path / each for each in given])
        ]

    assert names("") == ["a.txt", "b/1.jsonl", "b/2.txt", "b.txt"]
    assert names("b", "a.txt") == ["b/1.jsonl", "b/2.txt", "a.txt"]
    assert names("*.txt") == ["a.txt", "b.txt"]
    assert names("**/*.txt") == ["a.txt", "b/2.txt", "b.txt"] or sorted(names("**/*.txt")) == [
        "a.txt",
        "b.txt",
        "b/2.txt",
    ]
    assert names("b.txt", "") == ["b.txt", "a.txt", "b/1.jsonl", "b/2.txt"], (
        "each file is read once"
    )
    assert ignored_files([tmp_path]) == [str(tmp_path / "notes.md")]


def test_a_file_named_in_two_ways_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b").mkdir()
    write(tmp_path / "b" / "1.txt", "x")
    monkeypatch.chdir(tmp_path)
    given = ["b/1.txt", "./b/*.txt", "b/../b", tmp_path / "b", "b//1.txt"]
    assert [file.path for file in find_files(given)] == ["b/1.txt"], "as it was named first"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.txt", r"gone\.txt: no such file, folder or glob"),
        (
            "notes.md",
            r"notes\.md: the name does not say what the file holds; expected one of \.txt",
        ),
        ("empty", r"the folder .*empty holds no corpus file"),
    ],
)
def test_names_that_stand_for_nothing(tmp_path: Path, name: str, message: str) -> None:
    write(tmp_path / "notes.md", "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=message):
        find_files([tmp_path / name])
    with pytest.raises(DataError, match="no corpus was named"):
        find_files([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"documents": "pages"}, "documents is 'pages', expected blank-lines or files"),
        ({"bad_rows": "drop"}, "bad_rows is 'drop', expected error, skip or quarantine"),
        ({"chunk_bytes": 1}, "expected 16 <= chunk_bytes"),
    ],
)
def test_options_are_checked(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CorpusOptions(**options)  # type: ignore[arg-type]


KINDS = st.sampled_from(
    [
        ".txt",
        ".jsonl",
        ".txt.gz",
        ".txt.xz",
        ".txt.bz2",
        ".txt.zst",
        ".parquet",
        ".jsonl.gz",
        ".parquet.zst",
    ]
)
SEEDS = [TEXT.encode(), JSONL.encode(), b"\xef\xbb\xbf", b"\0" * 9, b"\xff\xfe", b"\r\n" * 5]


@given(KINDS, st.sampled_from(SEEDS), st.data())
@settings(
    max_examples=150, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_file_breaks_the_reader(
    tmp_path: Path, suffix: str, seed: bytes, data: st.DataObject
) -> None:
    """Packed, then damaged at random: the reader ends, and says DataError or reads on."""
    packed = bytearray(parquet() if "parquet" in suffix else seed)
    packed = bytearray(
        PACKS["." + suffix.split(".")[2]](bytes(packed)) if suffix.count(".") == 2 else packed
    )
    for _ in range(data.draw(st.integers(0, 4))):
        if packed:
            packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    path = write(tmp_path / f"a{suffix}", bytes(packed[: data.draw(st.integers(0, len(packed)))]))
    bad: list[BadRow] = []
    options = CorpusOptions(bad_rows="skip", chunk_bytes=64, max_row_bytes=4096)
    documents = list(read_documents([path], options, on_bad=bad.append))
    if bad:
        with pytest.raises(DataError, match=r"line \d+"):
            list(read_documents([path], CorpusOptions(chunk_bytes=64, max_row_bytes=4096)))
    assert all(
        paragraph.strip() == paragraph != ""
        for document in documents
        for paragraph in document.paragraphs
    )
