"""Which engine answers: by name, by the folder, by what is installed; exports made on first use;
answers without torch."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from litebert import cli, doctor, loading
from litebert.config import HeadConfig, ModelConfig, generator_of
from litebert.errors import CheckpointError, ConfigError
from litebert.infer import engines, export_cache, predictor
from litebert.infer.cpu import Processor
from litebert.infer.engines import choose_engine
from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.predictor import load
from litebert.loading import load_checkpoint
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import Task, TaskCard
from tests.helpers.models import LABELS, save_model, texts


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "litebert" / "exports"


@pytest.mark.parametrize("engine", ["onnx", "openvino"])
def test_a_checkpoint_is_exported_once(cache: Path, tmp_path: Path, engine: str) -> None:
    model = save_model(tmp_path / "model", "classify")
    first = load(model, engine=engine)
    (folder,) = cache.iterdir()
    assert first.engine.name == engine
    assert f"exported once for {engine}: {folder}" in first.notes[-1]
    second = load(model, engine=engine)
    assert second.notes == ()
    expected = load(model, engine="torch").embed(texts(4))
    for each in (first, second):
        np.testing.assert_allclose(each.embed(texts(4)), expected, atol=2e-5)
    assert list(cache.iterdir()) == [folder]


SIGNALED = """
import gc, os, signal, sys
from litebert.infer.predictor import load

models = [load(folder) for folder in sys.argv[1:]]
for model in models:
    model.embed("the whale")
while models:
    del models[0], model
    model = None
    gc.collect()
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGTERM)
"""


SIGNAL_STACK = """
import ctypes
from litebert.infer.predictor import load

def stack():
    now = ctypes.create_string_buffer(64)
    assert ctypes.CDLL(None).sigaltstack(None, now) == 0
    return now.raw

before = stack()
load({model!r}, engine="openvino").embed("the whale")
print(stack() == before)
"""


@pytest.mark.parametrize("engine", ["onnx", "openvino"])
def test_signals_are_handled_after_models_have_gone(tmp_path: Path, engine: str) -> None:
    checkpoint, _ = load_checkpoint(save_model(tmp_path / "model", "masked"))
    folders = [str(tmp_path / name) for name in ("one", "two")]
    for folder in folders:
        export_folder(checkpoint, folder, ExportOptions(runtime=engine))  # type: ignore[arg-type]
    command = [sys.executable, "-X", "faulthandler", "-c", SIGNALED, *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr


def test_openvino_leaves_the_signal_stack_alone(tmp_path: Path) -> None:
    """Handlers need more than the few kilobytes of its own."""
    load(save_model(tmp_path / "model", "masked"), engine="openvino").embed("the whale")
    code = SIGNAL_STACK.format(model=str(tmp_path / "model"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_damaged_export_is_made_again_and_another_checkpoint_gets_its_own(
    cache: Path, tmp_path: Path
) -> None:
    model = save_model(tmp_path / "model", "classify")
    load(model, engine="onnx")
    (folder,) = cache.iterdir()
    (folder / "layer-0.onnx").write_bytes(b"no graph")
    again = load(model, engine="onnx")
    assert "exported once" in again.notes[-1]
    assert again.embed("the whale").shape == (32,)
    other = save_model(tmp_path / "other" / "model", "classify", seed=1)
    assert load(other, engine="onnx").fingerprint != again.fingerprint
    assert len(list(cache.iterdir())) == 2


def test_a_checkpoint_that_changed_is_not_answered_for(tmp_path: Path, cache: Path) -> None:
    model = save_model(tmp_path / "model", "classify")
    load(model, engine="onnx")
    other = save_model(tmp_path / "other" / "model", "classify", seed=1)
    shutil.copy(other / "model.safetensors", model)  # and not manifest.json
    with pytest.raises(CheckpointError, match=r"model.safetensors .* the file is damaged"):
        load(model, engine="onnx")
    assert len(list(cache.iterdir())) == 1


def test_a_generator_is_left_out_and_every_load_says_so(tmp_path: Path, cache: Path) -> None:
    base, _ = load_checkpoint(save_model(tmp_path / "base", "masked"))
    encoder = base.model.config.encoder
    config = ModelConfig(
        encoder=encoder,
        heads=(HeadConfig(kind="detect"),),
        generator=generator_of(encoder, size=None, layers=1, tie="embeddings"),
    )
    checkpoint = Checkpoint(model=Model(config).eval(), tokenizer=base.tokenizer)
    folder = checkpoint.save(tmp_path / "model")
    for _ in range(2):
        model = load(folder, engine="onnx")
        assert (
            sum("the generator, which fills masks, is not exp" in note for note in model.notes) == 1
        )
        with pytest.raises(ConfigError, match=r"cannot fill; it can embed; .* --engine torch"):
            model.fill("the [MASK] sails")
    assert load(folder, engine="torch").fill("the [MASK] sails")


def test_the_cache_is_bounded_and_the_last_used_stay(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_cache, "MOST_FOLDERS", 2)
    models = [save_model(tmp_path / str(n) / f"m{n}", "classify", seed=n) for n in range(3)]
    for model in (models[0], models[1], models[0], models[2]):
        load(model, engine="onnx")
    assert sorted(path.name[:2] for path in cache.iterdir()) == ["m0", "m2"]


def test_a_cache_that_cannot_be_written_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_model(tmp_path / "model", "classify")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    read, loads = loading.load_checkpoint, []

    def counted(*arguments: Any, **options: Any) -> Any:
        loads.append(arguments)
        return read(*arguments, **options)

    monkeypatch.setattr(loading, "load_checkpoint", counted)
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME, or take --engine torch"):
        load(model, engine="onnx")
    assert not loads
    monkeypatch.setattr(engines, "has_gpu", lambda: False)
    answering = load("sentiment")  # auto needs no cache
    assert answering.engine.name == "torch"
    assert "computed by torch, which starts more slowly: " in answering.notes[0]
    assert "cannot be written (" in answering.notes[0]
    assert len(loads) == 1


def test_auto_needs_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Whatever keeps a cache from being used, an embedded model answers, by torch."""
    monkeypatch.setattr(engines, "has_gpu", lambda: False)
    assert load("sentiment").engine.name == "onnx"

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(export_cache.os, "utime", refuse)
    assert load("sentiment").engine.name == "onnx"  # it may be read
    for folder in cache.iterdir():
        (folder / "layer-0.onnx").write_bytes(b"no graph")
    monkeypatch.setattr(export_cache, "remove_folder", refuse)
    assert load("sentiment").engine.name == "torch"
    monkeypatch.setattr(export_cache, "verify_folder", refuse)
    assert load("sentiment").engine.name == "torch"
    with pytest.raises(ConfigError, match=r"cannot be written \(Permission denied\); make room"):
        load("sentiment", engine="onnx")

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(export_cache.Path, "home", nowhere)
    assert load("sentiment").engine.name == "torch"
    with pytest.raises(ConfigError, match="no home folder to keep exports in; set XDG_CACHE_HOME"):
        load("sentiment", engine="onnx")


def test_auto_needs_what_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime alone, which other packages bring, runs graphs and writes none."""
    monkeypatch.setattr(engines, "has_gpu", lambda: False)
    find = engines.importlib.util.find_spec
    monkeypatch.setattr(
        engines.importlib.util, "find_spec", lambda name: None if name == "onnx" else find(name)
    )
    name, reason = choose_engine("auto")
    assert name == "torch"
    assert reason.endswith("onnx and openvino are faster and not installed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda"}, "device cuda is for the engine torch"),
        ({"dtype": "bfloat16"}, "dtype bfloat16 is for the engine torch"),
        ({"compile": True}, "compile is for the engine torch"),
        ({"kernels": "off"}, "kernels off is for the engine torch"),
    ],
)
def test_what_torch_alone_has_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_model(tmp_path / "model", "classify")
    checkpoint, _ = load_checkpoint(model)
    export_folder(checkpoint, tmp_path / "out")
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / "out", **options)
    with pytest.raises(ConfigError, match=message):
        load(model, engine="onnx", **options)
    assert load(tmp_path / "out", device="cpu", dtype="float32").verbs[:2] == ("embed", "classify")
    if "device" in options:
        out = str(tmp_path / "out")
        assert cli.run(["classify", "the whale", "--model", out, "--device", "cuda"]) == 2
        assert message in capsys.readouterr().err


def test_an_unverified_checkpoint_is_known_by_its_files(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", "classify")
    verified = export_cache.identity(model)
    (model / "manifest.json").write_text("{}")
    with pytest.raises(CheckpointError):
        load(model, engine="onnx")
    assert load(model, engine="onnx", unverified=True).embed("the whale").shape == (32,)
    assert export_cache.identity(model, unverified=True) != verified


@pytest.mark.parametrize("kind", get_args(Processor))
def test_auto_is_the_fastest_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Processor
) -> None:
    monkeypatch.setattr(engines, "has_gpu", lambda: False)
    monkeypatch.setattr(engines, "processor", lambda: kind)
    order, shown = engines.FASTEST[kind], engines.SHOWN[kind]
    assert order[-1] == "torch"  # which is always installed
    first = f"the fastest installed in float32 for {shown}"
    assert choose_engine("auto") == (order[0], first)
    assert choose_engine("openvino") == ("openvino", "as requested")
    assert choose_engine("auto", device="cuda:0")[0] == "torch"
    assert choose_engine("auto", dtype="bfloat16")[0] == "torch"
    assert choose_engine("auto", kernels="off")[0] == "torch"
    finding = next(each for each in doctor.examine(tmp_path) if each.name == "engine")
    assert finding.value.startswith(f"{order[0]} for embedded models, torch for your own: the fast")
    monkeypatch.setattr(engines, "is_installed", lambda name: name == order[1])
    second = f"{first}; {order[0]} is faster and not installed"
    assert choose_engine("auto") == (order[1], second)
    monkeypatch.setattr(engines, "is_installed", lambda name: name == "torch")
    assert choose_engine("auto", device="cpu")[0] == "torch"
    monkeypatch.setattr(engines, "has_gpu", lambda: True)
    assert choose_engine("auto") == ("torch", "there is a GPU")
    finding = next(each for each in doctor.examine(tmp_path) if each.name == "engine")
    assert finding.value.startswith("torch: there is a GPU; int8 with ")


def test_auto_exports_embedded_models_alone(tmp_path: Path, cache: Path) -> None:
    assert load(save_model(tmp_path / "model", "masked")).engine.name == "torch"
    assert not cache.exists()


def test_verbs_predict_and_evaluate_take_an_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Task(
        name="classify", kind="classify", scores=("accuracy",), labels=LABELS, head="classify"
    )
    card = TaskCard(task=task, max_length=64)
    model = str(save_model(tmp_path / "model", "classify", card=card))
    checkpoint, _ = load_checkpoint(model)
    export_folder(checkpoint, tmp_path / "exported")
    rows = [
        {"text": text, "label": each.label}
        for text, each in zip(texts(20), load(model).classify(texts(20)), strict=True)
    ]
    data = tmp_path / "dev.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for source in (["--model", model, "--engine", "onnx"], ["--model", f"{tmp_path}/exported"]):
        assert cli.run(["classify", "the whale", *source, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)["answers"][0]
        assert answer["label"] == load(model).classify("the whale").label
        out = tmp_path / f"{len(source)}.jsonl"
        assert cli.run(["predict", str(data), "--out", str(out), *source]) == 0
        written = [json.loads(line)["label"] for line in out.read_text().splitlines()]
        assert written == [row["label"] for row in rows]
        command = ["evaluate", "classify", *source, "--data", str(data), "--split", "dev"]
        capsys.readouterr()
        assert cli.run([*command, "--json", "--samples", "10"]) == 0
        assert json.loads(capsys.readouterr().out)["scores"]["accuracy"] == 1.0
    plain = str(save_model(tmp_path / "plain", "classify"))
    command = ["evaluate", "classify", "--model", plain, "--data", str(data), "--engine", "onnx"]
    assert cli.run(command) == 2
    assert "was fine-tuned for no task" in capsys.readouterr().err


ANSWER = """
import sys
from litebert import cli
code = cli.run(["classify", "the whale", *sys.argv[1:]])
heavy = {"torch", "onnx", "tyro", "rich", "jaxtyping", "transformers", "litebert.recipes"}
print(code, sorted(heavy & sys.modules.keys()))
"""


def heavy_imports(*flags: str) -> str:
    """The exit code of classify in a new process, and what it should not need."""
    command = [sys.executable, "-c", ANSWER, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "note" not in done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("engine", ["onnx", "openvino"])
def test_an_exported_model_answers_without_torch(tmp_path: Path, engine: str) -> None:
    checkpoint, _ = load_checkpoint(save_model(tmp_path / "model", "classify"))
    export_folder(checkpoint, tmp_path / "out", ExportOptions(runtime=engine))
    assert heavy_imports("--model", str(tmp_path / "out"), "--threads", "1") == "0 []"


def test_an_embedded_model_answers_without_torch_from_the_second_time_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "has_gpu", lambda: False)
    assert "exported once for onnx" in load("sentiment").notes[-1]
    assert heavy_imports("--device", "cpu") == "0 []"


def test_a_few_words_are_computed_by_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []
    loaded = predictor.load

    def record(*arguments: Any, threads: int | None, **options: Any) -> Any:
        asked.append(threads)
        return loaded(*arguments, threads=threads, **options)

    monkeypatch.setattr(predictor, "load", record)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    model = str(save_model(tmp_path / "model", "classify"))
    assert cli.run(["classify", "the whale", "--model", model]) == 0
    assert cli.run(["classify", "the whale " * 60, "--model", model]) == 0
    assert cli.run(["classify", "the whale", "--model", model, "--threads", "2"]) == 0
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cli.run(["classify", "the whale", "--model", model]) == 0
    assert asked == [1, None, 2, None]
