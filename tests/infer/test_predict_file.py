"""litebert predict: every kind of file, in order; stopped anywhere and by anything, the same bytes
in the end."""

import errno
import fcntl
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from litebert.errors import ConfigError, DataError
from litebert.infer import output, streaming
from litebert.infer.files import PredictOptions, predict_file
from litebert.infer.output import ResumableFile
from litebert.infer.predictor import Predictor, load
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.memory import PEEK
from litebert.tasks.tables.rows import read_rows
from litebert.tasks.task import Task, TaskCard
from tests.helpers.models import LABELS, save_model, texts
from tests.infer.test_exits import checkpoint_of

TEXTS = [text.replace("first", 'the "first",') for text in texts(60)]
CLASSIFY = PredictOptions(verb="classify")


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "WINDOW_ITEMS", 7)
    monkeypatch.setattr(output, "RECORD_SECONDS", 0.0)


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(
        tmp_path / "in.jsonl",
        [{"id": f"k{n}", "text": text, "label": "?"} for n, text in enumerate(TEXTS)],
    )


def csv_file(folder: Path) -> Path:
    path = folder / "in.csv"
    quoted = ('"' + text.replace('"', '""') + '"' for text in TEXTS)
    path.write_text("text\n" + "".join(line + "\r\n" for line in quoted))
    return path


def tsv_file(folder: Path) -> Path:
    path = folder / "in.tsv"
    path.write_text("other\ttext\n" + "".join(f"x\t{text}\n" for text in TEXTS))
    return path


def gzip_file(folder: Path) -> Path:
    path = folder / "in.txt.gz"
    path.write_bytes(gzip.compress("".join(text + "\n" for text in TEXTS).encode()))
    return path


def parquet_file(folder: Path) -> Path:
    path = folder / "in.parquet"
    pq.write_table(pa.table({"text": TEXTS}), path)
    return path


@pytest.mark.parametrize("make", [csv_file, tsv_file, gzip_file, parquet_file])
def test_every_kind_of_input_is_answered_in_order(
    tmp_path: Path, labeller: Predictor, make: Callable[[Path], Path]
) -> None:
    report = predict_file(labeller, make(tmp_path), tmp_path / "out" / "p.jsonl", CLASSIFY)
    rows = read_jsonl(tmp_path / "out" / "p.jsonl")
    expected = labeller.classify(TEXTS)
    assert [row["label"] for row in rows] == [prediction.label for prediction in expected]
    for row, prediction in zip(rows, expected, strict=True):
        assert row["probabilities"] == pytest.approx(prediction.probabilities, abs=2e-6)
    first = {"in.csv": 2, "in.tsv": 2, "in.txt.gz": 1, "in.parquet": 1}[make(tmp_path).name]
    unit = "row" if make is parquet_file else "line"
    assert [row[unit] for row in rows] == list(range(first, 60 + first))
    assert (report.rows, report.rows_before, report.bad_rows, report.verb) == (60, 0, 0, "classify")
    assert "text is 'text'" in report.notes[0]


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_tables_hold_what_json_holds(
    tmp_path: Path, labeller: Predictor, source: Path, suffix: str
) -> None:
    options = PredictOptions(verb="classify", keep=("id", "label", "text"))
    predict_file(labeller, source, tmp_path / "p.jsonl", options)
    predict_file(labeller, source, tmp_path / f"p{suffix}", options)
    table = [row for _, row in read_rows(tmp_path / f"p{suffix}")]
    for ours, row in zip(read_jsonl(tmp_path / "p.jsonl"), table, strict=True):
        assert row["id"] == ours["id"]
        assert row["input:label"] == "?"  # the truth beside the guess
        assert row["text"].split() == ours["text"].split()
        assert (row["line"], row["label"]) == (str(ours["line"]), ours["label"])
        assert float(row["probability"]) == max(ours["probabilities"].values())
        assert float(row["probability:good"]) == ours["probabilities"]["good"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_kept_columns_never_share_a_name(tmp_path: Path, labeller: Predictor, suffix: str) -> None:
    """Predictions can be the input of another run, with their columns beside the new ones."""
    row = {
        "text": "the whale",
        "label": "a",
        "input:label": "b",
        "probability:good": "0.25",
        "line": "c",
    }
    source = write_jsonl(tmp_path / "in.jsonl", [row])
    options = PredictOptions(
        verb="classify", keep=("label", "input:label", "probability:good", "line")
    )
    predict_file(labeller, source, tmp_path / f"p{suffix}", options)
    ((_, row),) = read_rows(tmp_path / f"p{suffix}")
    copied = {
        "input:label": "a",
        "input:input:label": "b",
        "input:probability:good": "0.25",
        "input:line": "c",
    }
    assert copied.items() <= row.items()
    assert row["label"] == labeller.classify("the whale").label


def test_columns_are_known_by_more_than_the_first_row(tmp_path: Path) -> None:
    """What only later rows have is read and not passed over: the first row is the odd one."""
    model = load(save_model(tmp_path / "m", "regress"))
    rows = [{"sentence1": "the whale"}, {"sentence1": "the whale", "sentence2": "a ship", "id": 7}]
    source = write_jsonl(tmp_path / "in.jsonl", rows)
    with pytest.raises(
        DataError, match=r"line 1: the row has no field 'sentence2'; it has: sentence1"
    ):
        predict_file(model, source, tmp_path / "p.jsonl")
    options = PredictOptions(keep=("id",), table=TableOptions(bad_rows="skip"))
    predict_file(model, source, tmp_path / "p.jsonl", options)
    (row,) = read_jsonl(tmp_path / "p.jsonl")
    assert (row["line"], row["id"]) == (2, 7)
    assert row["value"] == pytest.approx(model.regress("the whale", "a ship"), abs=1e-6)


VERBS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "fill": ("masked", {"text": "the [MASK] sails"}, {}),
    "embed": ("masked", {"text": "the whale"}, {}),
    "pair": (
        "classify",
        {"sentence1": "the whale", "sentence2": "a ship"},
        {"label": "", "probability": ""},
    ),
    "regress": ("regress", {"sentence1": "the whale", "sentence2": "a ship"}, {"value": ""}),
    "choose": (
        "choose",
        {"context": "the", "question": "a _", "options": ["ship", "whale"]},
        {"index": "", "probability": ""},
    ),
    "answer": (
        "span",
        {"question": "the whale", "context": "a ship sails ."},
        {"text": "", "start": "", "null_score": ""},
    ),
    "tag": ("tag", {"words": "the whale"}, {"tags": ""}),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_writes_lines(tmp_path: Path, verb: str) -> None:
    head, row, columns = VERBS[verb]
    model = load(save_model(tmp_path / "m", head))  # type: ignore[arg-type]
    source = write_jsonl(tmp_path / "in.jsonl", [row] * 3)
    options = PredictOptions(verb=verb, top=2, normalize=True)  # type: ignore[arg-type]
    predict_file(model, source, tmp_path / "p.jsonl", options)
    first, second, third = read_jsonl(tmp_path / "p.jsonl")
    assert first | {"line": 0} == second | {"line": 0} == third | {"line": 0}
    if not columns:
        assert (
            len(first["masks"][0]) == 2
            if verb == "fill"
            else sum(x * x for x in first["vector"]) == pytest.approx(1)
        )
        with pytest.raises(
            ConfigError,
            match=rf"what {verb} gives does not fit into a table; write it to a \.jsonl file",
        ):
            predict_file(model, source, tmp_path / "p.csv", options)
        return
    predict_file(model, source, tmp_path / "p.csv", options)
    rows = [row for _, row in read_rows(tmp_path / "p.csv")]
    assert len(rows) == 3
    assert columns.keys() <= rows[0].keys()


class StoppedError(Exception):
    """What ends a run in the middle."""


def stop_after(windows: int) -> Callable[[int], None]:
    left = [windows]

    def watch(rows: int) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise StoppedError

    return watch


def test_stopped_anywhere_it_ends_with_the_same_bytes(
    tmp_path: Path, labeller: Predictor, source: Path
) -> None:
    draw = random.Random(0)
    for name in ("p.jsonl", "p.csv"):
        predict_file(labeller, source, tmp_path / f"undisturbed-{name}", CLASSIFY)
        undisturbed = (tmp_path / f"undisturbed-{name}").read_bytes()
        for stop in (1, 2, 4, 5, 9):
            out = tmp_path / str(stop) / name
            note, partial = Path(f"{out}.progress.json"), Path(f"{out}.partial")
            with pytest.raises(StoppedError):
                predict_file(labeller, source, out, CLASSIFY, on_progress=stop_after(stop))
            assert not out.exists()
            if (
                stop < 6
                # the note is some windows old, and more was written, the last line incomplete
            ):
                older = shutil.copy(note, tmp_path / "note")
                with pytest.raises(StoppedError):
                    predict_file(
                        labeller, source, out, CLASSIFY, on_progress=stop_after(draw.randint(1, 3))
                    )
                shutil.copy(older, note)
            partial.write_bytes(partial.read_bytes() + b'{"line": 12, "lab')
            report = predict_file(labeller, source, out, CLASSIFY)
            assert out.read_bytes() == undisturbed
            assert report.rows_before == min(7 * stop, 60)
            assert not partial.exists()


def test_a_finished_file_is_left_alone(tmp_path: Path, labeller: Predictor, source: Path) -> None:
    out = tmp_path / "p.jsonl"
    predict_file(labeller, source, out, CLASSIFY)
    before = out.stat()
    report = predict_file(labeller, source, out, CLASSIFY)
    assert (report.rows, report.rows_before) == (60, 60)
    assert out.stat().st_mtime_ns == before.st_mtime_ns
    out.rename(tmp_path / "p.jsonl.partial")  # killed after the last note and before the name
    predict_file(labeller, source, out, CLASSIFY)
    assert out.stat().st_size == before.st_size
    out.unlink()  # removed by someone: written again
    assert predict_file(labeller, source, out, CLASSIFY).rows_before == 0
    assert out.stat().st_size == before.st_size


def test_another_model_or_question_is_refused_with_the_difference(
    tmp_path: Path, labeller: Predictor, source: Path
) -> None:
    out = tmp_path / "p.jsonl"
    with pytest.raises(StoppedError):
        predict_file(labeller, source, out, CLASSIFY, on_progress=stop_after(2))
    other = load(save_model(tmp_path / "other", "classify", seed=5))
    with pytest.raises(
        ConfigError,
        match=r"started with other settings .* undo: model: [0-9a-f]{12}… then, [0-9a-f]{12}… now",
    ):
        predict_file(other, source, out, CLASSIFY)
    with pytest.raises(ConfigError, match=r"undo: keep: \[\] then, \['id'\] now"):
        predict_file(labeller, source, out, PredictOptions(verb="classify", keep=("id",)))
    begin_again = PredictOptions(verb="classify", overwrite=True)
    report = predict_file(other, source, out, begin_again)
    assert (report.rows, report.rows_before) == (60, 0)
    before = out.read_bytes()
    with pytest.raises(StoppedError):
        predict_file(labeller, source, out, begin_again, on_progress=stop_after(2))
    assert out.read_bytes() == before  # the old one stays until the new one is complete
    assert predict_file(labeller, source, out, CLASSIFY).rows_before == 14
    assert out.read_bytes() != before


def test_where_no_row_was_written_other_settings_start_anew(
    tmp_path: Path, labeller: Predictor, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that stopped before its first prediction leaves nothing to lose."""
    expected, out = tmp_path / "expected.csv", tmp_path / "stopped.csv"
    settings = PredictOptions(verb="classify", keep=("id",))
    predict_file(labeller, source, expected, settings)
    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "predict", lambda *args, **kind: stop_after(0)(1))
        with pytest.raises(StoppedError):
            predict_file(labeller, source, out, CLASSIFY)
    record = json.loads(out.with_name("stopped.csv.progress.json").read_text())
    assert record["rows"] == 0
    assert record["bytes"] > 0  # the header, which has another column now
    predict_file(labeller, source, out, settings)
    assert out.read_bytes() == expected.read_bytes()


def test_the_columns_of_the_training_are_remembered(tmp_path: Path) -> None:
    """Flags, where there are any, win; a table without these columns is read by their names."""
    columns = {"text": ("body",), "label": ("verdict",)}
    task = Task(
        name="classify", kind="classify", scores=("accuracy",), labels=LABELS, head="classify"
    )
    plain = save_model(
        tmp_path / "plain", "classify", card=TaskCard(task=task, max_length=32), seed=2
    )
    card = TaskCard(task=task, max_length=32, columns=columns)
    model = load(save_model(tmp_path / "model", "classify", card=card, seed=2))
    rows = [{"text": "no", "body": text, "verdict": "?", "n": n} for n, text in enumerate(TEXTS)]
    source = write_jsonl(tmp_path / "in.jsonl", rows)

    def predict(
        predictor: Predictor, rows: Path, **table: str
    ) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        out = tmp_path / "out.jsonl"
        options = PredictOptions(table=TableOptions(**table), overwrite=True)
        report = predict_file(predictor, rows, out, options)
        return read_jsonl(out), report.notes

    by_flag, notes = predict(load(plain), source, text="body")
    assert notes == ()
    remembered, notes = predict(model, source)
    assert remembered == by_flag
    assert notes == ("in.jsonl: columns as in training: text is 'body'",)
    assert len({str(each["probabilities"]) for each in remembered}) > 1
    other, notes = predict(model, source, text="text")
    assert len({str(each["probabilities"]) for each in other}) == 1
    assert notes == ()
    renamed = write_jsonl(tmp_path / "other.jsonl", [{"text": row["body"]} for row in rows])
    assert predict(model, renamed) == (
        by_flag,
        ("other.jsonl: columns recognized by their names: text is 'text'",),
    )
    vectors = predict_file(model, source, tmp_path / "vectors.jsonl", PredictOptions(verb="embed"))
    assert vectors.notes == ("in.jsonl: columns as in training: text is 'body'",)


def test_early_exit_is_for_the_verbs_of_a_task(tmp_path: Path, source: Path) -> None:
    folder = checkpoint_of(tmp_path, "classify", "one").save(tmp_path / "model")
    predictor = load(folder, device="cpu", exit="confidence")
    out = tmp_path / "out.jsonl"
    with pytest.raises(ConfigError, match="embed takes all layers, and --exit is for the verbs of"):
        predict_file(predictor, source, out, PredictOptions(verb="embed"))
    predict_file(predictor, source, out, CLASSIFY)
    assert all("depth" in row for row in read_jsonl(out))


def test_another_input_is_refused(tmp_path: Path, labeller: Predictor, source: Path) -> None:
    rows = source.read_text().splitlines(keepends=True)
    out = tmp_path / "p.jsonl"
    with pytest.raises(StoppedError):
        predict_file(labeller, source, out, CLASSIFY, on_progress=stop_after(2))
    source.write_text("".join([rows[0].replace("k0", "other"), *rows[1:]]))
    with pytest.raises(
        DataError,
        match="the input has changed: its first 14 rows are not those that were predicted before",
    ):
        predict_file(labeller, source, out, CLASSIFY)
    source.write_text("".join(rows[:5]))
    with pytest.raises(
        DataError, match="the input has changed: it has 5 usable rows now, 14 were predicted before"
    ):
        predict_file(labeller, source, out, CLASSIFY)
    source.write_text("".join(rows[:50]))
    assert predict_file(labeller, source, out, CLASSIFY).rows == 50
    source.write_text("".join(rows))
    with pytest.raises(
        DataError,
        match=r"has grown since .*p\.jsonl was finished; choose another --out, or add --overwrite",
    ):
        predict_file(labeller, source, out, CLASSIFY)


def test_bad_rows_are_never_silent(tmp_path: Path, labeller: Predictor) -> None:
    rows = [json.dumps({"text": text}) for text in TEXTS]
    rows[20], rows[40] = '{"text": ""}', "not json"
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(rows) + "\n")
    out = tmp_path / "p.jsonl"
    with pytest.raises(
        DataError,
        match=r"in\.jsonl, line 21: the field 'text' is empty; fix it, or leave it out with",
    ):
        predict_file(labeller, source, out, CLASSIFY)
    quarantine = PredictOptions(verb="classify", table=TableOptions(bad_rows="quarantine"))
    report = predict_file(labeller, source, out, quarantine)  # resumes
    assert (report.rows, report.rows_before, report.bad_rows) == (58, 14, 2)
    assert [row["line"] for row in read_jsonl(out)] == [
        n for n in range(1, 61) if n not in (21, 41)
    ]
    assert [row["line"] for row in read_jsonl(tmp_path / "p.jsonl.quarantine.jsonl")] == [21, 41]
    assert "2 bad rows were left out" in report.notes[-1]
    masks = write_jsonl(
        tmp_path / "masks.jsonl",
        [{"text": "a [MASK]"}, {"text": "none"}, {"text": "the " * 99 + "[MASK]"}],
    )
    filler = load(save_model(tmp_path / "m", "masked"))
    skip = PredictOptions(verb="fill", table=TableOptions(bad_rows="skip"))
    assert predict_file(filler, masks, tmp_path / "f.jsonl", skip).bad_rows == 2


def test_wrong_requests_leave_nothing_behind(
    tmp_path: Path, labeller: Predictor, source: Path
) -> None:
    out = tmp_path / "new" / "p.jsonl"
    empty = tmp_path / "empty.csv"
    empty.write_text("text\n")
    keep = PredictOptions(verb="classify", keep=("nothing",))
    cases: list[tuple[Path, Path, PredictOptions, str]] = [
        (
            source,
            out,
            keep,
            r"there is no column 'nothing' to keep; .*in\.jsonl has: id, text, label",
        ),
        (
            source,
            out,
            PredictOptions(),
            "this model can embed and classify and pair; choose one with --verb",
        ),
        (
            source,
            out.with_suffix(".xml"),
            CLASSIFY,
            r"--out is a file that ends in \.jsonl, \.ndjson, \.csv, \.tsv; got ",
        ),
        (source, source, CLASSIFY, r"--out is the input, .*in\.jsonl; choose another file"),
        (empty, out, CLASSIFY, r"empty\.csv has no usable row; expected one for each prediction"),
        (tmp_path / "absent.csv", out, CLASSIFY, r"absent\.csv: cannot be opened"),
        (tmp_path / "absent.doc", out, CLASSIFY, r"the name does not say what the file holds"),
    ]
    for input_file, target, options, message in cases:
        with pytest.raises((ConfigError, DataError), match=message):
            predict_file(labeller, input_file, target, options)
    assert not out.parent.exists() or not list(out.parent.iterdir())
    out.parent.mkdir(exist_ok=True)
    out.write_text("mine")
    with pytest.raises(
        ConfigError, match="exists already; choose another --out, or replace it with --overwrite"
    ):
        predict_file(labeller, source, out, CLASSIFY)
    assert [path.name for path in out.parent.iterdir()] == ["p.jsonl"]
    assert out.read_text() == "mine"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("name", ["p.jsonl.partial", "p.jsonl.progress.json"])
def test_files_of_others_by_the_names_of_ours_are_left_alone(
    name: str, there: bool, overwrite: bool, tmp_path: Path, labeller: Predictor, source: Path
) -> None:
    mine, out = tmp_path / "out" / name, tmp_path / "out" / "p.jsonl"
    mine.parent.mkdir()
    mine.write_text('{"mine": 1}')
    if there:
        out.write_text("mine, too")
    options = PredictOptions(verb="classify", overwrite=overwrite)
    with pytest.raises((ConfigError, DataError), match=rf"{name} (exists|cannot be read)"):
        predict_file(labeller, source, out, options)
    assert mine.read_text() == '{"mine": 1}'
    assert out.exists() == there


def test_two_processes_do_not_write_one_file(
    tmp_path: Path, labeller: Predictor, source: Path
) -> None:
    with (tmp_path / "p.jsonl.partial").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(
            ConfigError,
            match=r"another process is writing .*p\.jsonl; wait for it, or choose another --out",
        ):
            predict_file(labeller, source, tmp_path / "p.jsonl", CLASSIFY)


class FillingDisk:
    """A file on a disk that takes some writes, each only in part, and is full then."""

    def __init__(self, file: Any, writes: int) -> None:
        self.file, self.writes, self.fileno, self.close = file, writes, file.fileno, file.close

    def write(self, data: memoryview) -> int:
        self.writes -= 1
        if self.writes < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(self.file.write(data[: 1 + len(data) // 2]))


def test_a_full_disk_is_said_and_survived(
    tmp_path: Path, labeller: Predictor, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "p.jsonl"
    predict_file(labeller, source, tmp_path / "undisturbed.jsonl", CLASSIFY)
    begin = ResumableFile.__init__

    def on_filling_disk(self: ResumableFile, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self._file = FillingDisk(self._file, 50)  # type: ignore[assignment]

    with monkeypatch.context() as patch:
        patch.setattr(ResumableFile, "__init__", on_filling_disk)
        with pytest.raises(
            DataError, match=r"p\.jsonl cannot be written \(No space left on device\); make room or"
        ):
            predict_file(labeller, source, out, CLASSIFY)
    assert 0 < predict_file(labeller, source, out, CLASSIFY).rows_before < 60
    assert out.read_bytes() == (tmp_path / "undisturbed.jsonl").read_bytes()


def test_a_damaged_note_is_refused(tmp_path: Path, labeller: Predictor, source: Path) -> None:
    out = tmp_path / "p.jsonl"
    with pytest.raises(StoppedError):
        predict_file(labeller, source, out, CLASSIFY, on_progress=stop_after(2))
    note = tmp_path / "p.jsonl.progress.json"
    for text in ("", "[]", '{"format": "other", "version": 1}', note.read_text()[:-40]):
        note.write_text(text)
        with pytest.raises(
            DataError,
            match=r"p\.jsonl\.progress\.json cannot be read .*; start over with --overwrite",
        ):
            predict_file(labeller, source, out, CLASSIFY)


def test_no_more_than_a_window_is_read_ahead(
    tmp_path: Path, labeller: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constant memory: when the tenth window is written, no row beyond it was read (but for the
    file's own chunk, and the first rows, which tell the columns)."""
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in TEXTS * 5])
    read = [0]
    original = read_rows

    def counted(*args: Any, **kwargs: Any) -> Any:
        for each in original(*args, **kwargs):
            read[0] += 1
            yield each

    monkeypatch.setattr("litebert.tasks.tables.memory.read_rows", counted)
    seen: list[tuple[int, int]] = []
    predict_file(
        labeller,
        source,
        tmp_path / "p.jsonl",
        CLASSIFY,
        on_progress=lambda rows: seen.append((rows, read[0])),
    )
    assert all(max(rows, PEEK) == count for rows, count in seen)
    assert len(seen) == -(-300 // 7)


PROGRAM = """
import os, signal, sys, time
import torch
from litebert.infer import streaming, output
from litebert.infer.predictor import load
from litebert.infer.files import predict_file
from litebert.infer.files import PredictOptions

torch.set_num_threads(1)
streaming.WINDOW_ITEMS, output.RECORD_SECONDS = 7, 0.0
model, source, out = load(sys.argv[1]), *sys.argv[2:]
for seconds in sys.stdin:
    child = os.fork()  # torch is imported once
    if child == 0:
        slow = lambda rows: time.sleep(0.002)
        predict_file(model, source, out, PredictOptions(verb="classify"), on_progress=slow)
        os._exit(0)
    time.sleep(float(seconds))
    os.kill(child, signal.SIGKILL)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def test_killed_at_random_it_ends_with_the_same_bytes(tmp_path: Path, classifier: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", [{"text": text} for text in TEXTS * 8])
    predict_file(load(classifier), source, tmp_path / "undisturbed.jsonl", CLASSIFY)
    out, note = tmp_path / "p.jsonl", tmp_path / "p.jsonl.progress.json"
    command = [sys.executable, "-c", PROGRAM, str(classifier), str(source), str(out)]
    draw = random.Random(0)
    rows: list[int] = []
    kills = 0
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(30):
            process.stdin.write(f"{draw.uniform(0, 0.1)}\n")
            kills += int(process.stdout.readline()) == signal.SIGKILL
            rows.append(json.loads(note.read_text())["rows"] if note.exists() else 0)
            if out.exists():
                break
    assert rows == sorted(rows)
    assert kills
    predict_file(load(classifier), source, out, CLASSIFY)
    assert out.read_bytes() == (tmp_path / "undisturbed.jsonl").read_bytes()


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_cells_that_a_spreadsheet_would_run_are_made_inert(
    labeller: Predictor, tmp_path: Path, suffix: str
) -> None:
    cells = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "-5.5", "+3", "plain", " =1"]
    rows = [{"text": "a day", "note": cell} for cell in cells]
    source = write_jsonl(tmp_path / "in.jsonl", rows)

    def notes(**options: Any) -> list[str]:
        out = tmp_path / f"p{len(options)}{suffix}"
        predict_file(
            labeller, source, out, PredictOptions(verb="classify", keep=("note",), **options)
        )
        return [row["note"] for _, row in read_rows(out)]

    last = " =1" if suffix == ".csv" else "'=1"
    assert notes() == ["'" + cell for cell in cells[:4]] + ["-5.5", "+3", "plain", last]
    assert notes(raw_cells=True) == [cell.strip() if suffix == ".tsv" else cell for cell in cells]
