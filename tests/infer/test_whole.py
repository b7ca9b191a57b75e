"""litebert export --whole: one graph that plain onnxruntime runs, with the Hub's names."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import transformers

from litebert import cli
from litebert.config import HeadKind, ModelConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.infer.export import check
from litebert.infer.export.check import WholeGraph
from litebert.infer.export.folder import ExportOptions, export_folder, export_model
from litebert.infer.predictor import load
from litebert.infer.verbs import answer_example, choice_example, tag_example, text_example
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import EmbedCard, Task, TaskCard
from tests.helpers.models import LABELS, texts
from tests.infer.test_export import PLANS, assert_close, model_of

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


@pytest.mark.parametrize("head", ["regress", "choose"])
def test_a_single_number_is_compared_over_all_texts(tmp_path: Path, head: HeadKind) -> None:
    checkpoint = model_of(tmp_path, (head,))
    options = ExportOptions(whole=True, precision="int8")
    report = export_folder(checkpoint, tmp_path / "out", options)
    assert 0.9 < report.cosine < 1 - 1e-6
    assert report.least_cosine <= report.cosine


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
    with pytest.raises(CheckpointError, match=r"holds a graph for other programs .* no weights"):
        load(tmp_path / "out")


EXAMPLES: dict[HeadKind, list[Any]] = {
    "classify": [text_example(text) for text in texts(12)],
    "multilabel": [text_example(text, "the old fox .") for text in texts(6)],
    "regress": [text_example(text, "the old fox .") for text in texts(6)],
    "choose": [
        choice_example(context, "who ?", options)
        for context, options in zip(
            texts(3), (["a", "b"], ["c", "d", "e f"], ["x", "y z"]), strict=True
        )
    ],
    "tag": [tag_example(text) for text in texts(6)],
    "span": [answer_example("who ?", text) for text in texts(4, seed=3)],
}


@pytest.mark.parametrize("head", EXAMPLES)
def test_whole_graphs_predict_what_the_engine_predicts(tmp_path: Path, head: HeadKind) -> None:
    """Padding, pairs and windows included: the check of an export scores them so."""
    checkpoint = model_of(tmp_path, (head, "order"))
    export_folder(checkpoint, tmp_path / "out", ExportOptions(whole=True))
    model = load(checkpoint.save(tmp_path / "model"), engine="torch", device="cpu")
    kind = next(iter(model.cards))
    graph = WholeGraph(tmp_path / "out" / "onnx" / "model.onnx", model.tokenizer)
    predicted = graph.predict(model.cards[kind], EXAMPLES[head])
    assert_close(list(predicted), list(model.predict(EXAMPLES[head], kind=kind)))  # type: ignore[arg-type]


def test_a_whole_graph_that_loses_score_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(name="classify", kind="classify", scores=("accuracy",), labels=LABELS,
                head="classify")  # fmt: skip
    card = TaskCard(task=task, max_length=64)
    checkpoint = replace(model_of(tmp_path, ("classify",)), task=card.to_dict())
    model = checkpoint.save(tmp_path / "model")
    rows = [
        {"text": text, "label": each.label}
        for text, each in zip(texts(40), load(model).classify(texts(40)), strict=True)
    ]
    data = tmp_path / "data"
    data.mkdir()
    (data / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["export", "--model", str(model), "--whole", "--int8", "--data", str(data), "--out"]
    assert cli.run([*command, str(tmp_path / "out"), "--force", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["score"], report["before"]) == ("accuracy", 1.0)
    assert 0.8 < report["after"] <= 1.0
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out" / "onnx").iterdir()}
    assert report["graphs"] == sizes
    assert cli.run([*command, str(tmp_path / "shown"), "--force"]) == 0
    shown = capsys.readouterr().out.splitlines()
    weights = 4 * sum(each.numel() for each in checkpoint.model.parameters())
    for line, (name, size) in zip(shown, sorted(sizes.items()), strict=False):
        ratio = f"{size / weights:.2f} of the float32 weights"
        assert line == f"{tmp_path}/shown/onnx/{name}: {size / 1e6:.1f} MB, {ratio}"
    # a processor is asked for what it computes exactly
    scored: list[str] = []

    def fake(engine: Any, *_: Any) -> float:
        scored.append(engine.name)
        return 0.8 if engine.name == "model_quint8_avx2.onnx" else 0.9

    monkeypatch.setattr(check, "_score", fake)
    monkeypatch.setattr(check, "processor", lambda: "avx2")
    assert cli.run([*command, str(tmp_path / "bad")]) == 3
    assert "accuracy falls by 10.0 points, from 90.0 to 80.0" in capsys.readouterr().err
    assert scored == ["torch", "model.onnx", "model_quint8_avx2.onnx"]
    assert not (tmp_path / "bad").exists()


def test_exits_that_one_graph_leaves_out_are_told(tmp_path: Path) -> None:
    base = model_of(tmp_path, ("classify",))
    heads = tuple(replace(head, exits="each") for head in base.model.config.heads)
    model = Model(ModelConfig(encoder=base.model.config.encoder, heads=heads)).eval()
    folder = Checkpoint(model=model, tokenizer=base.tokenizer).save(tmp_path / "model")
    _, notes = export_model(folder, tmp_path / "out", ExportOptions(whole=True))
    assert "the exits are not exported" in notes[-1]
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["architectures"] == ["AlbertForSequenceClassification"]


class Optimum(torch.nn.Module):
    """optimum's ORTModelForFeatureExtraction, as far as sentence-transformers asks it: optimum does
    not install beside this transformers."""

    main_input_name = "input_ids"

    def __init__(self, path: Path, config: Any) -> None:
        super().__init__()
        self.config, self.device, self.dtype = config, torch.device("cpu"), torch.float32
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    @classmethod
    def from_pretrained(
        cls, folder: str, *, config: Any, export: bool, file_name: str, subfolder: str, **_: Any
    ) -> "Optimum":
        assert not export
        return cls(Path(folder) / subfolder / file_name, config)

    def _save_pretrained(self, folder: Path) -> None: ...

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        **_: Any,
    ) -> Any:
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        tensors = (input_ids, attention_mask, token_type_ids)
        inputs = {name: each.numpy() for name, each in zip(INPUTS, tensors, strict=True)}
        (states,) = self.session.run(["last_hidden_state"], inputs)
        return transformers.modeling_outputs.BaseModelOutput(
            last_hidden_state=torch.from_numpy(states)
        )


@pytest.mark.parametrize(
    ("plan", "card"),
    [
        ("shared", None),
        ("rotary", None),
        ("shared", EmbedCard(pooling="cls")),
        ("rotary", EmbedCard()),
    ],
)
def test_sentence_transformers_reads_the_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str, card: EmbedCard | None
) -> None:
    from sentence_transformers import SentenceTransformer

    checkpoint = model_of(tmp_path, ("masked",), **PLANS[plan])
    checkpoint = replace(checkpoint, task=card and card.to_dict())
    options = ExportOptions(whole=True, precision="int8")
    export_folder(checkpoint, tmp_path / "out", options)
    optimum, runtime = ModuleType("optimum"), ModuleType("optimum.onnxruntime")
    runtime.__dict__["ONNX_WEIGHTS_NAME"] = "model.onnx"
    for name in ("CausalLM", "FeatureExtraction", "MaskedLM", "SequenceClassification"):
        runtime.__dict__[f"ORTModelFor{name}"] = Optimum
    monkeypatch.setitem(sys.modules, "optimum", optimum)
    monkeypatch.setitem(sys.modules, "optimum.onnxruntime", runtime)
    model = load(checkpoint.save(tmp_path / "model"), engine="torch", device="cpu")
    exact = model.embed(texts(4))
    for file_name, tolerance in (("model.onnx", 2e-5), ("model_quint8_avx2.onnx", 0.3)):
        theirs = SentenceTransformer(
            str(tmp_path / "out"),
            backend="onnx",
            device="cpu",
            trust_remote_code=plan == "rotary",
            model_kwargs={"file_name": file_name, "provider": "CPUExecutionProvider"},
        )
        np.testing.assert_allclose(theirs.encode(texts(4)), exact, atol=tolerance)


@pytest.mark.parametrize("plan", ["shared", "rotary"])
def test_the_tokenizer_truncates_to_what_the_graph_reads(tmp_path: Path, plan: str) -> None:
    checkpoint = model_of(tmp_path, ("masked",), **PLANS[plan])
    export_folder(checkpoint, tmp_path / "out", ExportOptions(whole=True))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = " ".join(texts(40))
    inputs = tokenizer(text, truncation=True, return_tensors="np")
    assert inputs["input_ids"].shape == (1, checkpoint.model.config.encoder.max_positions)
    session = onnxruntime.InferenceSession(tmp_path / "out/onnx/model.onnx")
    (states,) = session.run(None, {name: inputs[name] for name in INPUTS})
    model = load(checkpoint.save(tmp_path / "model"), engine="torch", device="cpu")
    np.testing.assert_allclose(states.mean(1), model.embed([text]), atol=2e-5)
