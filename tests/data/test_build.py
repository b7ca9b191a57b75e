"""Building shards: what they hold, and that nothing but the corpus decides it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from litebert import cli
from litebert.data import build as build_module
from litebert.data import runners
from litebert.data.build import BuildOptions, build_shards
from litebert.data.corpus import CorpusOptions, read_documents
from litebert.data.shard_writer import BuildProgress
from litebert.data.shards import Shards
from litebert.errors import ConfigError, DataError, LitebertError
from litebert.text.sentences import split_sentences
from litebert.text.tokenizer import Tokenizer
from tests.helpers.building import contents, made_documents, make_tokenizer, small_build, write_text
from tests.helpers.programs import ROOT


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("corpus")
    rows = "".join(
        json.dumps({"text": "\n".join(each)}) + "\n" for each in made_documents(60, seed=2)
    )
    (folder / "b.jsonl").write_text(rows)
    return [write_text(folder / "a.txt", made_documents(150, seed=1)), folder / "b.jsonl"]


@pytest.fixture(scope="module")
def built(corpus: list[Path], tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "shards"
    small_build(corpus, tokenizer, out)
    return out


def read_back(folder: Path) -> list[list[list[int]]]:
    """Token ids of each sentence of each document."""
    shards = Shards.open(folder, verify=True)
    actual = []
    for number in range(len(shards)):
        shard = shards.arrays(number)
        sentences = [
            ids.tolist() for ids in np.split(shard.tokens, shard.sentences[1:-1].astype(int))
        ]
        bounds = shard.documents.astype(int)
        actual += [sentences[start:end] for start, end in pairwise(bounds)]
    return actual


def test_shards_hold_the_sentences_of_the_documents(
    built: Path, corpus: list[Path], tokenizer: Path
) -> None:
    encode = Tokenizer.load(tokenizer).encode_batch
    expected = []
    for document in read_documents(corpus):
        expected.append(
            encode(
                [
                    sentence
                    for paragraph in document.paragraphs
                    for sentence in split_sentences(paragraph)
                ]
            )
        )
    assert len(Shards.open(built)) > 3, "the test is about several shards"
    assert read_back(built) == expected


def test_index_says_what_is_there(built: Path, corpus: list[Path], tokenizer: Path) -> None:
    index = Shards.open(built).index
    documents = read_back(built)
    assert index["documents"] == len(documents) == 210
    assert [each["documents"] for each in index["corpus"]] == [150, 60]
    assert index["tokens"] == sum(len(ids) for document in documents for ids in document)
    assert index["unknown"] == sum(ids.count(1) for document in documents for ids in document)
    assert index["text_bytes"] == sum(path.stat().st_size for path in corpus)
    assert (
        index["tokenizer"]
        == Tokenizer.load(tokenizer).fingerprint
        == Tokenizer.load(built / "tokenizer").fingerprint
    )
    assert all(record["tokens"] >= 3000 for record in index["shards"][:-1])
    assert not (built / ".build").exists()


def test_a_line_may_be_a_sentence(corpus: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    small_build(corpus[:1], tokenizer, tmp_path, split="lines")
    encode = Tokenizer.load(tokenizer).encode_batch
    assert read_back(tmp_path) == [
        encode(document.paragraphs) for document in read_documents(corpus[:1])
    ]


@pytest.mark.parametrize(
    "text",
    [
        "今日は雨です。家にいます。 Then tabs\tand  double spaces. And more.",
        "Don´t ¨ do. It \u200b is. Ｆｕｌｌ　width.\u00a0Narrow. End.",
        "\u200b. \u200b",
        "A. \u0301 B. The end. ½ of it. Now.",
    ],
)
def test_white_space_and_marks_of_all_kinds(text: str, tokenizer: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(
        f"A plain sentence. Another one.\n{text}\nThe last one. It ends.\n", encoding="utf-8"
    )
    small_build([path], tokenizer, tmp_path / "out")
    encode = Tokenizer.load(tokenizer).encode_batch
    sentences = [
        each
        for line in path.read_text(encoding="utf-8").split("\n")
        for each in split_sentences(line)
    ]
    assert read_back(tmp_path / "out") == [[ids for ids in encode(sentences) if ids]]


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_change_nothing(
    workers: int, built: Path, corpus: list[Path], tokenizer: Path, tmp_path: Path
) -> None:
    small_build(corpus, tokenizer, tmp_path / "out", workers=workers)
    assert contents(tmp_path / "out") == contents(built)


@pytest.mark.system
def test_ray_changes_nothing(
    built: Path, corpus: list[Path], tokenizer: Path, tmp_path: Path
) -> None:
    """A real cluster of two workers on this machine; in a process of its own, since Ray is noisy
    about warnings."""
    code = (
        "import sys; from pathlib import Path; from tests.helpers.building import small_build; "
        "small_build([*map(Path, sys.argv[3:])], Path(sys.argv[1]), Path(sys.argv[2]), workers=2, "
        "runner='ray')"
    )
    out = tmp_path / "out"
    subprocess.run([sys.executable, "-c", code, tokenizer, out, *corpus], check=True, cwd=ROOT)
    assert contents(out) == contents(built)


def test_a_finished_build_is_left_as_it_is(
    built: Path, corpus: list[Path], tokenizer: Path
) -> None:
    before = contents(built)
    report = small_build(corpus, tokenizer, built)
    assert report.shards_reused == report.shards
    assert report.encoded_bytes == 0
    assert contents(built) == before


@pytest.mark.parametrize("harm", ["missing", "changed", "cut off"])
def test_only_what_is_missing_is_made_again(
    harm: str, built: Path, corpus: list[Path], tokenizer: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    small_build(corpus, tokenizer, out)
    victim = out / "00001.tokens.npy"
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    if harm == "missing":
        victim.unlink()
    else:
        victim.write_bytes(bytes(data) if harm == "changed" else bytes(data[:-10]))
    report = small_build(corpus, tokenizer, out)
    assert report.shards_reused == report.shards - 1
    assert contents(out) == contents(built)


def interrupt_after(parcels: int) -> Callable[[BuildProgress], None]:
    left = [parcels]

    def watch(progress: BuildProgress) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    return watch


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("parcels", [0, 9])
def test_an_interrupted_build_goes_on(
    parcels: int, workers: int, built: Path, corpus: list[Path], tokenizer: Path, tmp_path: Path
) -> None:
    options = BuildOptions(
        corpus=CorpusOptions(chunk_bytes=2048), shard_tokens=3000, workers=workers
    )
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        build_shards(
            corpus, tokenizer=tokenizer, out=out, options=options, watch=interrupt_after(parcels)
        )
    assert not (out / "index.json").exists()
    report = small_build(corpus, tokenizer, out, workers=workers)
    assert (report.shards_reused > 0) == (parcels > 0)
    assert contents(out) == contents(built)


def command(corpus: list[Path], tokenizer: Path, out: Path, workers: int) -> list[str]:
    code = (
        "import sys; from pathlib import Path; from tests.helpers.building import small_build; "
        "small_build([*map(Path, sys.argv[4:])], Path(sys.argv[1]), Path(sys.argv[2]), "
        "workers=int(sys.argv[3]))"
    )
    return [sys.executable, "-c", code, str(tokenizer), str(out), str(workers), *map(str, corpus)]


def test_kills_change_nothing(
    built: Path, corpus: list[Path], tokenizer: Path, tmp_path: Path
) -> None:
    """SIGKILL at random moments; torture/build.py does it fifty times on more text."""
    draw = random.Random(0)
    out = tmp_path / "out"
    for workers in (1, 2, 1, 2):
        process = subprocess.Popen(command(corpus, tokenizer, out, workers), cwd=ROOT)
        while process.poll() is None and not (out / ".build").exists():
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.1))
        process.kill()
        process.wait()
    subprocess.run(command(corpus, tokenizer, out, 2), check=True, cwd=ROOT)
    assert contents(out) == contents(built)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_75(number: signal.Signals, tokenizer: Path, tmp_path: Path) -> None:
    for documents in (5_000, 20_000, 80_000):  # more where the build ended before the signal
        corpus = write_text(tmp_path / f"{documents}.txt", made_documents(documents))
        out = tmp_path / str(documents)
        words = ["data", "build", corpus, "--tokenizer", tokenizer, "--out", out, "--workers", "2"]
        command = [sys.executable, "-m", "litebert.cli", *map(str, words)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        while process.poll() is None and not list(out.glob(".build/*.tokens.tmp")):
            time.sleep(0.005)
        process.send_signal(number)
        _, told = process.communicate()
        if process.returncode != 0:
            break
    assert process.returncode == 75, told.decode()
    assert b"the same command again" in told
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert len(Shards.open(out, verify=True)) == 1


def test_another_build_is_refused_with_the_difference(
    corpus: list[Path], tokenizer: Path, tmp_path: Path
) -> None:
    path, out = tmp_path / "a.txt", tmp_path / "out"
    path.write_text("One two. Three.\n")
    small_build([path], tokenizer, out)
    (out / "notes.md").write_text("mine")
    path.write_text("One two. Tree!!\n")
    with pytest.raises(
        DataError,
        match=r"another build \(.*a\.txt has changed \(16 bytes before, 16 now\)\); .*--overwrite",
    ):
        small_build([path], tokenizer, out)
    with pytest.raises(
        DataError,
        match=r"shard_tokens: was 3000, is 50; .*split|sentences: was rules-\d+, is lines",
    ):
        small_build([path], tokenizer, out, split="lines", shard_tokens=50)
    with pytest.raises(DataError, match=r"a\.txt is gone; .*b\.txt is new"):
        small_build([path.rename(tmp_path / "b.txt")], tokenizer, out)
    small_build([tmp_path / "b.txt"], tokenizer, out, overwrite=True)
    fresh = tmp_path / "fresh"
    small_build([tmp_path / "b.txt"], tokenizer, fresh)
    assert contents(out) == contents(fresh) | {"notes.md": b"mine"}


def test_another_tokenizer_is_refused(corpus: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    small_build(corpus, tokenizer, tmp_path)
    config = json.loads((tokenizer / "tokenizer_config.json").read_text())
    other = Tokenizer.load(tokenizer)
    assert config
    from dataclasses import replace

    changed = tmp_path / "other"
    Tokenizer(other.model, replace(other.rules, lowercase=False)).save(changed)
    with pytest.raises(DataError, match=r"tokenizer: was [0-9a-f]{64}, is [0-9a-f]{64}"):
        small_build(corpus, changed, tmp_path)


def test_foreign_shards_are_not_touched(
    corpus: list[Path], tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / "00000.tokens.npy").write_bytes(b"precious")
    with pytest.raises(DataError, match="shards without an index"):
        small_build(corpus, tokenizer, tmp_path)
    assert (tmp_path / "00000.tokens.npy").read_bytes() == b"precious"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["tokenizer", "quarantine.jsonl"])
def test_what_no_build_wrote_is_not_replaced(
    name: str, overwrite: bool, tokenizer: Path, tmp_path: Path
) -> None:
    write_text(tmp_path / "a.txt", made_documents(5))
    mine = tmp_path / ("tokenizer/notes.txt" if name == "tokenizer" else name)
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("{}")
    before = contents(tmp_path)
    with pytest.raises(
        DataError, match=f"holds {name}, which no build wrote .*; name another folder, or move"
    ):
        small_build([tmp_path / "a.txt"], tokenizer, tmp_path, overwrite=overwrite)
    assert contents(tmp_path) == before


def test_a_tokenizer_may_lie_in_the_folder_of_its_shards(tokenizer: Path, tmp_path: Path) -> None:
    corpus = write_text(tmp_path / "a.txt", made_documents(5))
    Tokenizer.load(tokenizer).save(tmp_path / "out" / "tokenizer")
    (tmp_path / "out" / "tokenizer" / "notes.txt").write_text("mine")
    for changes in ({}, {"split": "lines", "overwrite": True}):
        small_build([corpus], tmp_path / "out" / "tokenizer", tmp_path / "out", **changes)  # type: ignore[arg-type]
        assert (tmp_path / "out" / "tokenizer" / "notes.txt").read_text() == "mine"


BAD = b"Good one.\nbad \xff line\n\nGood two.\nbad \0 line\n"


def test_bad_rows_stop_a_build(tokenizer: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(BAD)
    with pytest.raises(
        DataError, match=r"a\.txt, line 2: byte 0xff .* --bad-rows skip or quarantine"
    ):
        small_build([path], tokenizer, tmp_path / "out")
    report = small_build([path], tokenizer, tmp_path / "out", bad_rows="skip")
    assert (report.bad_rows, report.documents, len(report.bad)) == (2, 2, 2)


def test_a_corpus_in_another_encoding_is_not_skipped_silently(
    tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(
        "\n".join(["Schöne Grüße. Bis bald."] * 30 + ["one two"] * 10).encode("cp1252")
    )
    words = ["data", "build", str(path), "--tokenizer", str(tokenizer), "--bad-rows", "skip"]
    words += ["--out", str(tmp_path / "out")]
    assert cli.run(words) == 3
    shown = capsys.readouterr().err
    assert "30 of 40 rows and sentences would be left out, more than 10%; the first: " in shown
    assert "convert a file in another encoding to UTF-8, or allow it with --max-bad-rows 1" in shown
    assert cli.run([*words, "--max-bad-rows", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shards_reused"] == 1
    words = ["tokenizer", "train", str(path), "--bad-rows", "skip", "--vocab-size", "19"]
    assert cli.run([*words, "--language", "en", "--out", str(tmp_path / "new")]) == 3
    assert "30 of 40 rows would be left out" in capsys.readouterr().err
    assert not (tmp_path / "new" / "spiece.model").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_rows_are_kept(workers: int, tokenizer: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(BAD * 20 + b"\n\0 last\n" * 50)
    out = tmp_path / "out"
    settings = {
        "bad_rows": "quarantine",
        "shard_tokens": 60,
        "chunk_bytes": 128,
        "workers": workers,
        "max_bad_rows": 1.0,
    }
    report = small_build([path], tokenizer, out, **settings)  # type: ignore[arg-type]
    rows = [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]
    assert report.bad_rows == len(rows) == 90
    assert report.shards > 2
    assert rows[1] == {
        "file": str(path),
        "line": 5,
        "reason": "there is a NUL character at column 5, which no text has",
        "row": "bad \0 line",
    }
    assert rows[0]["row_base64"] == "YmFkIP8gbGluZQ=="
    assert [row["line"] for row in rows] == sorted(row["line"] for row in rows)
    before = contents(out)
    (out / "00000.tokens.npy").unlink()
    small_build([path], tokenizer, out, **settings)  # type: ignore[arg-type]
    assert contents(out) == before


def test_a_long_document_is_cut_only_when_it_must_be(tokenizer: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Some words stand here. And more.\n" * 3000)
    report = small_build([path], tokenizer, tmp_path / "once", shard_tokens=20_000)
    assert (report.documents, report.shards) == (1, 1) or report.documents == report.shards
    report = small_build([path], tokenizer, tmp_path / "cut", shard_tokens=2000)
    sizes = [record["tokens"] for record in Shards.open(tmp_path / "cut").index["shards"]]
    assert report.documents == report.shards > 5
    assert all(4000 <= size < 6000 for size in sizes[:-1])


def test_no_text_at_all(tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n \n")
    with pytest.raises(DataError, match="there is no text in 1 files, with 0 bad rows"):
        small_build([tmp_path / "a.txt"], tokenizer, tmp_path / "out")


def test_two_builds_at_once(corpus: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    def meanwhile(progress: BuildProgress) -> None:
        with pytest.raises(DataError, match="another build is at work"):
            small_build(corpus, tokenizer, tmp_path)

    build_shards(corpus[1:], tokenizer=tokenizer, out=tmp_path, watch=meanwhile)


def test_a_full_disk_is_foreseen(
    corpus: list[Path], tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = os.statvfs(tmp_path)
    monkeypatch.setattr(
        build_module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})()
    )
    with pytest.raises(
        DataError, match=r"the shards need about 0\.\d+ GB more, .* has 0\.000 GB free; make room"
    ):
        small_build(corpus, tokenizer, tmp_path)
    assert usage.f_bsize


def test_a_full_disk_loses_nothing(
    built: Path, corpus: list[Path], tokenizer: Path, tmp_path: Path
) -> None:
    calls = []

    def failing(progress: object) -> None:
        calls.append(progress)
        if len(calls) == 8:
            raise OSError(28, "No space left on device")

    with pytest.raises(
        DataError, match=r"no space left in .*; finished shards are kept: make room"
    ):
        small_build(corpus, tokenizer, tmp_path / "out", watch=failing)
    assert small_build(corpus, tokenizer, tmp_path / "out").shards_reused > 0
    assert contents(tmp_path / "out") == contents(built)


def test_a_dead_worker_is_told(
    corpus: list[Path], tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = runners._Child.ask

    def killing(self: runners._Child, parcel: object) -> object:
        self._process.kill()
        return ask(self, parcel)  # type: ignore[arg-type]

    monkeypatch.setattr(runners._Child, "ask", killing)
    with pytest.raises(
        LitebertError,
        match=r"a worker process was killed by signal 9, often for want of memory; .* resumes",
    ):
        small_build(corpus, tokenizer, tmp_path / "out", workers=2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": 0}, "workers is 0, expected 1 or more"),
        ({"runner": "threads"}, "runner is 'threads', expected one of processes, ray"),
        ({"shard_tokens": 0}, "shard_tokens is 0, expected 1 or more"),
        ({"split": "words"}, "split is 'words', expected rules or lines"),
    ],
)
def test_options_are_checked(
    changes: dict[str, object], message: str, corpus: list[Path], tokenizer: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        small_build(corpus, tokenizer, tmp_path / "out", **changes)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists(), "nothing that another start would have to overwrite"


@pytest.mark.parametrize("name", ["a.txt", "a.txt/out"])
def test_a_folder_that_cannot_be_made(name: str, tokenizer: Path, tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.txt", made_documents(5))
    with pytest.raises(
        DataError, match=r"the shards cannot be written to .*a\.txt.* \(.+\); name another folder"
    ):
        build_shards([path], tokenizer=tokenizer, out=tmp_path / name)


@pytest.mark.parametrize("out", ["corpus", "corpus/out"])
def test_bad_rows_kept_inside_the_corpus_are_no_part_of_it(
    out: str, tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_bytes(b"one two\n\nb\xffd\n")
    for _ in range(2):
        report = small_build(
            [tmp_path / "corpus"], tokenizer, tmp_path / out, bad_rows="quarantine"
        )
        assert (report.documents, report.bad_rows) == (1, 1)
    assert (tmp_path / out / "quarantine.jsonl").exists()


def test_a_corpus_that_changes_meanwhile(tokenizer: Path, tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.txt", made_documents(5))

    def change(progress: BuildProgress) -> None:
        path.write_text("something else")

    with pytest.raises(DataError, match=r"a\.txt changed while it was read"):
        build_shards([path], tokenizer=tokenizer, out=tmp_path / "out", watch=change)


def test_the_command(
    corpus: list[Path], tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "data",
        "build",
        *map(str, corpus),
        "--tokenizer",
        str(tokenizer),
        "--out",
        str(tmp_path / "out"),
    ]
    assert cli.run([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["documents"] == 210
    assert 0 <= printed["unknown_rate"] < 0.1
    assert cli.run(words) == 0
    shown = capsys.readouterr().out
    assert "documents" in shown
    assert "210" in shown
    assert cli.run([*words, "--split", "lines"]) == 3
    assert "--overwrite" in capsys.readouterr().err


def test_building_needs_no_torch(corpus: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from litebert import cli; code = cli.run(sys.argv[1:]); "
        "import litebert.data.runners; sys.exit(code or 'torch' in sys.modules)"
    )
    words = [
        "data",
        "build",
        *map(str, corpus),
        "--tokenizer",
        str(tokenizer),
        "--out",
        str(tmp_path),
        "--json",
    ]
    subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=subprocess.DEVNULL)
