"""Small defects of every reader and writer: each case was once a traceback, a silence or a wait."""

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import litebert
from litebert import cli
from litebert.convert.folder import convert_folder
from litebert.convert.unpickle import unpickle
from litebert.data.build import BuildOptions, build_shards
from litebert.data.journal import Journal
from litebert.errors import (
    CheckpointError,
    ConfigError,
    ConversionError,
    DataError,
    LitebertError,
)
from litebert.infer.files import PredictOptions, predict_file
from litebert.infer.predictor import Predictor, load
from litebert.recipes import PretrainRecipe
from litebert.report.run import read_run
from litebert.testing import tiny_tokenizer
from litebert.train.finetune.run import read_result
from litebert.train.folder import read_record, stored_threads
from litebert.train.log import read_records
from tests.helpers.models import save_model
from tests.helpers.text import made_lines


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "model", "masked")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "model", "classify", "choose", "tag")


@pytest.mark.parametrize("name", ["out.jsonl.partial", "out.jsonl.progress.json"])
def test_predict_follows_no_symbolic_link(
    name: str, classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("my own")
    (tmp_path / name).symlink_to(mine)
    source = tmp_path / "in.txt"
    source.write_text("the sailor\n")
    command = ["predict", str(source), "--out", str(tmp_path / "out.jsonl"), "--model"]
    command += [str(classifier), "--verb", "classify", "--device", "cpu"]
    for extra in ([], ["--overwrite"]):
        assert cli.run([*command, *extra]) == 2
        assert f"{name} is a symbolic link" in capsys.readouterr().err
    assert mine.read_text() == "my own"


def corpus_in(folder: Path) -> Path:
    path = folder / "corpus.txt"
    path.write_text("\n\n".join(made_lines(40)), encoding="utf-8")
    return path


def test_one_corpus_by_two_paths_is_one_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpus_in(tmp_path)
    tokenizer = tiny_tokenizer(tmp_path / "tokenizer")
    monkeypatch.chdir(tmp_path)
    first = build_shards(["corpus.txt"], tokenizer=tokenizer, out="shards")
    for path in (corpus, f"../{tmp_path.name}/corpus.txt"):
        again = build_shards([path], tokenizer=tokenizer, out="shards")
        assert again.shards_reused == first.shards == again.shards
    moved = corpus.rename(tmp_path / "moved.txt")
    assert build_shards([moved], tokenizer=tokenizer, out="shards").encoded_bytes == 0
    moved.write_text("another text")
    with pytest.raises(DataError, match="holds shards of another build"):
        build_shards([moved], tokenizer=tokenizer, out="shards")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EIO])
def test_a_folder_that_cannot_be_written_is_named(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *rest: Any, **options: Any) -> None:
        raise OSError(code, "refused", str(path))

    monkeypatch.setattr("litebert.data.journal.write_json", refuse)
    with pytest.raises(DataError, match=r"plan\.json cannot be read or written \(refused\)"):
        build_shards(
            [corpus_in(tmp_path)],
            tokenizer=tiny_tokenizer(tmp_path / "tokenizer"),
            out=tmp_path / "shards",
            options=BuildOptions(),
        )


@pytest.mark.parametrize("to", ["huggingface", "litebert"])
def test_a_finished_conversion_is_repeated_without_an_error(
    to: Any, pretrained: Path, tmp_path: Path
) -> None:
    source = pretrained
    if to == "litebert":
        convert_folder(pretrained, tmp_path / "source")
        source = tmp_path / "source"
    first = convert_folder(source, tmp_path / "target", to=to)
    assert convert_folder(source, tmp_path / "target", to=to) == first
    other = save_model(tmp_path / "other", "masked", seed=5)
    with pytest.raises(ConfigError, match="target exists and is not an empty folder"):
        convert_folder(other, tmp_path / "target", to="huggingface")


class Foreign:
    """Of a class that no loader should build."""


def test_a_pickle_of_objects_is_refused_in_our_words(tmp_path: Path) -> None:
    """torch's own advise to load it all the same, with weights_only=False."""
    torch.save({"weight": Foreign()}, tmp_path / "x.bin")
    with pytest.raises(SystemExit, match=r"other things than tensors, which are never loaded"):
        unpickle(str(tmp_path / "x.bin"), str(tmp_path / "x.safetensors"))


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float8_e4m3fn])
def test_weights_of_other_dtypes_are_refused(
    dtype: torch.dtype, pretrained: Path, tmp_path: Path
) -> None:
    model = save_model(tmp_path / "model", "masked")
    weights = load_file(model / "model.safetensors")
    name = next(iter(weights))
    save_file(weights | {name: weights[name].to(dtype)}, model / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"is stored as .*, config.json asks for one of F32"):
        litebert.load(model, device="cpu", unverified=True)
    convert_folder(pretrained, tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    weights = load_file(path)
    name = next(iter(weights))
    save_file(weights | {name: weights[name].to(dtype)}, path)
    with pytest.raises(ConversionError, match=r"is stored as .*; weights are read from F32"):
        litebert.load(tmp_path / "theirs", device="cpu", unverified=True)


@pytest.mark.parametrize("top", [1.5, 0, True, "3", None])
def test_top_is_a_whole_number(top: Any, pretrained: Path) -> None:
    with pytest.raises(ConfigError, match="top is a whole number from 1; got "):
        load(pretrained, device="cpu").fill("a [MASK]", top=top)


@pytest.mark.parametrize("folder", [b"model", 3, ["model"]])
def test_a_model_is_a_path_or_a_name(folder: Any) -> None:
    with pytest.raises(ConfigError, match="a model is the path of a folder or a name; got "):
        litebert.load(folder)


def test_long_values_are_echoed_by_their_beginning(pretrained: Path) -> None:
    model = load(pretrained, device="cpu")
    with pytest.raises(ConfigError) as wrong:
        model.embed([["x" * 1_000_000]])  # type: ignore[list-item]
    assert len(str(wrong.value)) < 300


@pytest.mark.parametrize("empty", ["", " \n\t"])
def test_an_empty_text_is_an_error_of_every_verb(
    empty: str,
    pretrained: Path,
    classifier: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As in files, where a row without text is a bad row."""
    model: Predictor = load(classifier, device="cpu")
    calls = [
        lambda: load(pretrained, device="cpu").fill(empty),
        lambda: model.embed(["a", empty]),
        lambda: model.classify(empty),
        lambda: list(model.classify(iter(["a", empty]))),
        lambda: model.pair("a", empty),
        lambda: model.choose(context="", question="", options=["a", "b"]),
        lambda: model.choose(context="a", question="b", options=["a", empty]),
        lambda: model.tag(empty),
        lambda: model.tag([[]]),
    ]
    for call in calls:
        with pytest.raises(DataError, match=r"is empty|no word to tag"):
            call()
    assert model.choose(context="a", question="", options=["a", "b"]).index in (0, 1)
    assert cli.run(["classify", empty, "--model", str(classifier), "--device", "cpu"]) == 3
    assert "is empty; leave it out" in capsys.readouterr().err
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": empty}) + "\n")
    command = ["predict", str(tmp_path / "in.jsonl"), "--model", str(classifier), "--verb"]
    command += ["classify", "--out", str(tmp_path / "out.jsonl"), "--device", "cpu"]
    assert cli.run(command) == 3
    assert "is empty" in capsys.readouterr().err


def test_a_table_of_too_many_columns_is_refused(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = tmp_path / "wide.csv"
    wide.write_text("\n".join([",".join(f"c{i}" for i in range(100_000)), "a" + "," * 99_999]))
    command = ["predict", str(wide), "--model", str(classifier), "--verb", "classify"]
    assert cli.run([*command, "--out", str(tmp_path / "out.csv"), "--device", "cpu"]) == 3
    assert "the header names 100,000 columns, at most 4,096 are read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"kind": "step", "step": 10**30}, "no step from 0 to"),
        ({"kind": "step", "step": -1}, "no step from 0 to"),
        ({"kind": "step", "step": True}, "no step from 0 to"),
        ([1], "no step from 0 to"),
    ],
)
def test_impossible_steps_are_refused(record: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(DataError, match=message):
        list(read_records(path))


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("metrics.jsonl", lambda path: list(read_records(path))),
        ("recipe.json", PretrainRecipe.load),
        ("recipe.json", lambda path: PretrainRecipe.from_json(path.read_text())),
        ("recipe.json", read_record),
        ("result.json", lambda path: read_result(path.parent)),
        ("status.json", lambda path: read_run(path.parent)),
        ("plan.json", lambda path: Journal(path.parent.parent).begin({}, overwrite=False)),
    ],
)
def test_json_that_nests_too_deeply_is_refused(
    name: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / ".build" / name
    path.parent.mkdir()
    path.write_text(DEEP + "\n")
    with pytest.raises(LitebertError, match=r"JSON|cannot be read"):
        read(path)


def test_an_environment_that_nests_too_deeply_is_no_environment(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text(DEEP)
    assert stored_threads(tmp_path) is None


@pytest.mark.parametrize("state", ["finished", "running"])
def test_huge_numbers_leave_gaps_in_a_report(state: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    huge = [
        {"kind": "step", "step": step, "loss": value, "tokens": value, "seconds": value}
        for step, value in enumerate([1.0, 10**400, 1e308, -1e308, 2.0, 10**18])
    ]
    rows = [json.dumps(row) for row in huge]
    rows.append('{"kind": "step", "step": 6, "loss": 1e999, "tokens": -1e999, "seconds": 3}')
    (run / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    status = {"state": state, "step": float("inf"), "steps": 10**400}
    (run / "status.json").write_text(json.dumps(status))
    assert cli.run(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "</html>" in page
    assert np.isfinite(len(page))


def test_a_loop_of_links_is_an_input_that_cannot_be_read(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = tmp_path / "loop.txt"
    loop.symlink_to(loop.name)
    command = ["predict", str(loop), "--model", str(classifier), "--verb", "classify", "--device"]
    assert cli.run([*command, "cpu", "--out", str(tmp_path / "out.csv")]) == 3
    assert "Too many levels of symbolic links" in capsys.readouterr().err
    assert cli.run(["doctor", "--json", "--folder", str(loop)]) == 0


def test_predictions_go_to_no_url(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("the sailor\n")
    model = load(classifier, device="cpu")
    with pytest.raises(ConfigError, match="is a URL, and litebert writes to local disks only"):
        predict_file(model, "in.txt", "s3://out.csv", PredictOptions(verb="classify"))
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize("head", ["masked", "classify", "regress", "choose", "tag"])
def test_answers_that_are_no_numbers_are_refused(head: str, tmp_path: Path) -> None:
    """Weights may be finite, and so large that what is computed is not."""
    model = load(save_model(tmp_path / "model", head), device="cpu")
    with torch.no_grad():
        for weight in model.model.parameters():
            weight.mul_(1e30)
    calls: dict[str, Callable[[], object]] = {
        "masked": lambda: model.fill("the [MASK]"),
        "classify": lambda: model.classify("the sailor"),
        "regress": lambda: model.regress("the sailor"),
        "choose": lambda: model.choose(context="a", question="b", options=["a", "b"]),
        "tag": lambda: model.tag("the sailor"),
    }
    for call in (calls[head], lambda: model.embed("the sailor")):
        with pytest.raises(CheckpointError, match="what the model computes is not a number"):
            call()
