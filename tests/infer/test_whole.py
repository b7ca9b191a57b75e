"""litebert export --whole: one graph that plain onnxruntime runs, with the Hub's names."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from litebert import cli
from litebert.config import HeadKind
from litebert.errors import ConfigError
from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.predictor import load
from tests.infer.test_export import PLANS, model_of

IDS = np.array([[2, 9, 12, 30, 7, 3], [2, 9, 41, 3, 0, 0]])
MASK = (IDS > 0).astype(np.int64)
INPUTS = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": np.zeros_like(IDS)}


def run(path: Path) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, INPUTS), strict=True))


def expected(model: torch.nn.Module, head: str) -> np.ndarray:
    with torch.no_grad():
        ids, mask = torch.from_numpy(IDS), torch.from_numpy(MASK).bool()
        output = model(token_ids=ids, segment_ids=torch.zeros_like(ids), mask=mask)
        result = output.states if head == "masked" else output.logits[head]
    values: np.ndarray = result.numpy()
    return values


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_is_one_graph(tmp_path: Path, plan: str) -> None:
    checkpoint = model_of(tmp_path, ("masked", "order"), **PLANS[plan])
    export_folder(checkpoint, tmp_path / "out", ExportOptions(whole=True))
    states = run(tmp_path / "out" / "onnx" / "model.onnx")["last_hidden_state"]
    truth = expected(checkpoint.model, "masked")
    np.testing.assert_allclose(states[MASK > 0], truth[MASK > 0], atol=2e-5)


@pytest.mark.parametrize("head", ["classify", "multilabel", "regress", "choose", "tag", "span"])
def test_every_head_has_its_logits(tmp_path: Path, head: HeadKind) -> None:
    checkpoint = model_of(tmp_path, (head, "order"), norm="pre", positions="rotary")
    export_folder(checkpoint, tmp_path / "out", ExportOptions(whole=True))
    outputs = run(tmp_path / "out" / "onnx" / "model.onnx")
    truth = expected(checkpoint.model, head)
    if head == "span":
        outputs["logits"] = np.stack([outputs["start_logits"], outputs["end_logits"]], -1)
    logits = outputs["logits"]
    if logits.ndim == 3:
        logits, truth = logits[MASK > 0], truth[MASK > 0]
    np.testing.assert_allclose(logits, truth, atol=2e-5)


def test_int8_graphs_have_the_hub_s_names_and_no_weight_twice(tmp_path: Path) -> None:
    checkpoint = model_of(
        tmp_path, ("classify",), hidden_size=256, ffn_size=1024, init_std=0.05, num_layers=3
    )
    options = ExportOptions(whole=True, precision="int8")
    report = export_folder(checkpoint, tmp_path / "out", options)
    weights = sum(each.numel() for each in checkpoint.model.parameters())
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out" / "onnx").iterdir()}
    assert set(sizes) == {
        "model.onnx",
        "model_qint8_avx512_vnni.onnx",
        "model_quint8_avx2.onnx",
        "model_qint8_arm64.onnx",
    }
    assert sizes.pop("model.onnx") < 1.1 * 4 * weights
    truth = expected(checkpoint.model, "classify")
    for name, size in sizes.items():
        assert size < 1.1 * weights, name
        logits = run(tmp_path / "out" / "onnx" / name)["logits"]
        assert 0 < np.abs(logits - truth).max() < 0.2
    assert report.cosine > 0.99
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["model_type"] == "albert"
    assert (tmp_path / "out" / "tokenizer.json").exists()


def test_what_one_graph_cannot_do_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="joint span head chooses an end for each start"):
        export_folder(
            model_of(tmp_path, ("joint_span",)), tmp_path / "out", ExportOptions(whole=True)
        )
    with pytest.raises(ConfigError, match="--whole writes one head; the model has classify, tag"):
        export_folder(
            model_of(tmp_path, ("classify", "tag")), tmp_path / "out", ExportOptions(whole=True)
        )
    model = str(model_of(tmp_path, ("classify",)).save(tmp_path / "model"))
    command = ["export", "--model", model, "--out", str(tmp_path / "out"), "--whole"]
    assert cli.run([*command, "--format", "openvino"]) == 2
    assert "--whole writes ONNX" in capsys.readouterr().err
    assert cli.run(command) == 0
    assert "onnx/model.onnx" in capsys.readouterr().out
    assert load(model).verbs
