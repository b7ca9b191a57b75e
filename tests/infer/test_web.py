"""litebert export --format web: its graphs compute what torch computes, its files hold what
config.json says, and what a browser cannot do is refused."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert import cli
from litebert.config import HeadKind
from litebert.errors import CheckpointError, ConfigError
from litebert.files import verify_folder
from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.export.web import PAGE, write_web
from litebert.infer.predictor import Predictor, load
from litebert.storage.checkpoint import Checkpoint
from tests.helpers.models import texts
from tests.helpers.web import task_model
from tests.infer.test_export import CALLS, PLANS, assert_close, model_of

MASKED = ["the [MASK] sails", "a [MASK] and a [MASK] or the [MASK] whale", "[MASK]"]
WEB = ExportOptions(runtime="web")


def pair_of(checkpoint: Checkpoint, folder: Path, *, int8: bool = False) -> list[Predictor]:
    """The same model in torch, and as the JavaScript computes it."""
    checkpoint.save(folder / "model")
    (folder / "web").mkdir()
    engine = write_web(checkpoint, folder / "web", int8=int8)
    ours = load(folder / "model", engine="torch", device="cpu")
    return [ours, Predictor(engine, task=checkpoint.task)]


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_computes_what_torch_computes(tmp_path: Path, plan: str) -> None:
    checkpoint = model_of(tmp_path, ("masked", "classify", "order"), **PLANS[plan])
    ours, web = pair_of(checkpoint, tmp_path)
    np.testing.assert_allclose(web.embed(texts(8)), ours.embed(texts(8)), atol=2e-5)
    for verb, inputs in (("fill", MASKED), ("classify", texts(8))):
        theirs, mine = (getattr(model, verb)(inputs) for model in (web, ours))
        assert_close(theirs, mine)


@pytest.mark.parametrize("head", ["multilabel", "regress"])
def test_other_heads_do_too(tmp_path: Path, head: HeadKind) -> None:
    ours, web = pair_of(model_of(tmp_path, (head,)), tmp_path)
    assert_close(CALLS[head](web), CALLS[head](ours))


def test_int8_is_close_and_a_quarter_of_the_size(tmp_path: Path) -> None:
    shape = {"hidden_size": 256, "ffn_size": 1024, "embedding_size": 64, "init_std": 0.05}
    checkpoint = model_of(tmp_path, ("masked", "classify"), **shape)
    ours, web = pair_of(checkpoint, tmp_path, int8=True)
    exact, theirs = (model.embed(texts(8), normalize=True) for model in (ours, web))
    assert ((exact * theirs).sum(1) > 0.999).all()
    weights = 4 * sum(each.numel() for each in checkpoint.model.parameters())
    stored = [path for path in (tmp_path / "web").iterdir() if path.suffix in (".onnx", ".bin")]
    assert sum(path.stat().st_size for path in stored) < 0.3 * weights


def test_no_weight_is_stored_twice(tmp_path: Path) -> None:
    for plan in ("shared", "own ends", "split adapters"):
        wide = PLANS[plan] | {"hidden_size": 256, "ffn_size": 512}
        checkpoint = model_of(tmp_path, ("masked", "classify"), **wide)
        (out := tmp_path / plan).mkdir()
        write_web(checkpoint, out, int8=False)
        weights = 4 * sum(each.numel() for each in checkpoint.model.parameters())
        stored = [path for path in out.iterdir() if path.suffix in (".onnx", ".bin")]
        assert sum(path.stat().st_size for path in stored) < 1.1 * weights, plan


def test_config_names_every_file_and_what_it_holds(tmp_path: Path) -> None:
    calibrated = {"confidence": {"threshold": 0.9, "tolerance": 0.0}}
    checkpoint = task_model(
        tmp_path,
        "classify",
        "masked",
        kind="classify",
        exits="each",
        card={"exits": calibrated, "temperature": 2.5},
        positions="rotary",
        norm="pre",
    )
    export_folder(checkpoint, tmp_path / "web", WEB)
    config = json.loads((tmp_path / "web" / "config.json").read_text())
    assert config["verbs"] == ["fill", "embed", "classify"]
    task = config["tasks"]["classify"]
    assert (task["exits"], task["temperature"], task["max_length"]) == (calibrated, 2.5, 48)
    assert [graph["graph"] for layer in config["plan"] for graph in layer] == ["layer-0"] * 4
    graphs = {f"{name}.onnx" for name in config["graphs"]}
    assert {"layer-0.onnx", "exit-1.onnx", "final.onnx", "masked.onnx"} < graphs
    for name, tensor in config["tensors"].items():
        size = np.dtype(tensor["type"]).itemsize * int(np.prod(tensor["shape"]))
        assert (tmp_path / "web" / f"{name}.bin").stat().st_size == size
    tensors = {f"{name}.bin" for name in config["tensors"]}
    assert tensors == {"token_table.bin", "masked_bias.bin", "cos.bin", "sin.bin"}
    same = {path.name for path in PAGE.iterdir()}
    assert {"index.html", "litebert.js", "README.md", "package.json"} < same
    others = {"config.json", "cleanup.json", "spiece.model"}
    assert set(verify_folder(tmp_path / "web")) == graphs | tensors | same | others


def test_the_javascript_reads_nothing_that_config_does_not_have() -> None:
    """Names in config.json are written here and read there."""
    script = "".join((PAGE / name).read_text() for name in ("litebert.js", "network.js"))
    read = set(re.findall(r"[cC]onfig\.(\w+)", script)) - {"json"}
    source = (PAGE.parent / "web.py").read_text()
    assert {"plan", "tensors", "verbs", "has_final"} < read
    assert {name for name in read if f'"{name}": ' not in source} == set()


def test_what_a_browser_cannot_do_is_refused(tmp_path: Path) -> None:
    for heads, verb in ((("tag",), "tag"), (("span",), "answer"), (("choose", "masked"), "choose")):
        with pytest.raises(ConfigError, match=f"a browser cannot {verb} yet, it can fill, embed"):
            export_folder(model_of(tmp_path, heads), tmp_path / "out", WEB)
    layers = model_of(tmp_path, ("classify",), reversible=True, norm="pre")
    with pytest.raises(ConfigError, match="reversible layers, with their two streams of states"):
        export_folder(layers, tmp_path / "out", WEB)
    bands = model_of(tmp_path, ("classify",), embedding_bands=(30, 60))
    with pytest.raises(ConfigError, match="embeddings in bands are computed by torch alone"):
        export_folder(bands, tmp_path / "out", WEB)
    without = replace(model_of(tmp_path, ("classify",)), tokenizer=None)
    with pytest.raises(CheckpointError, match="the model has no tokenizer beside it; copy its"):
        export_folder(without, tmp_path / "out", WEB)
    with pytest.raises(ConfigError, match="--whole writes one graph for other programs, --format"):
        ExportOptions(runtime="web", whole=True)
    assert not (tmp_path / "out").exists()


def test_the_command_exports_reports_and_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_of(tmp_path, ("masked",)).save(tmp_path / "model")
    out = tmp_path / "web"
    args = ["export", "--model", str(tmp_path / "model"), "--out", str(out), "--format", "web"]
    assert cli.run(args) == 0
    size = (
        sum(path.stat().st_size for path in out.iterdir()) - (out / "manifest.json").stat().st_size
    )
    printed = capsys.readouterr().out
    assert f"{out}: {size / 1e6:.1f} MB, web, float32" in printed
    assert "cosine to float32: 1.00000 on average" in printed
    assert f"next: npm install in {out}, then serve it over http" in printed
    assert cli.run(args) == 2
    assert f"{out} exists; choose another --out or remove it" in capsys.readouterr().err
    assert cli.run([*args[:4], str(tmp_path / "int8"), *args[5:], "--int8", "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["num_bytes"] < size
    for name in ("web", "int8"):
        with pytest.raises(CheckpointError, match="was written by litebert export for a browser"):
            load(tmp_path / name)
