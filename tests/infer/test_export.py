"""Exported models: every engine computes what torch computes, for every plan, norm, activation,
position and head; each weight is stored once."""

import json
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from litebert import cli
from litebert.config import EncoderConfig, HeadConfig, HeadKind, ModelConfig
from litebert.errors import CheckpointError, ConfigError, DataError
from litebert.infer import cpu, openvino_graphs
from litebert.infer.export import check
from litebert.infer.export.calibrate import BINS, best_range
from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.export.graph import Graph
from litebert.infer.onnx_bytes import reads_other_files
from litebert.infer.predictor import Predictor, load
from litebert.infer.vector_scores import score_similarity
from litebert.loading import load_checkpoint
from litebert.model.model import Model
from litebert.packing import HostBatch
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.registry import BENCHMARKS
from litebert.tasks.task import EmbedCard, Task, TaskCard
from litebert.testing import tiny_shards
from tests.helpers.models import LABELS, save_model, texts, tokenizer

SHAPE = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_layers": 4,
    "num_attention_heads": 2,
    "ffn_size": 64,
    "max_positions": 64,
    "init_std": 0.2,
}
PLANS: dict[str, dict[str, Any]] = {
    "shared": {},
    "groups": {"num_groups": 2},
    "cycle": {"num_layers": 2, "layers_per_group": 2, "cycle": "reversed"},
    "own ends": {"unshared_ends": 1},
    "attention shared": {"share": "attention"},
    "ffn shared": {"share": "ffn"},
    "unshared": {"share": "none", "embedding_size": 32},
    "pre-norm": {"norm": "pre", "activation": "relu"},
    "rotary": {"positions": "rotary", "norm": "pre", "rotary_base": 500.0},
    "erf": {"activation": "gelu_erf"},
    "adapters": {"adapter_rank": 4},
    "split adapters": {"adapter_rank": 4, "share": "attention", "positions": "rotary"},
}
HEADS: tuple[HeadKind, ...] = (
    "masked", "order", "classify", "multilabel", "regress", "span", "joint_span", "choose", "tag"
)  # fmt: skip
ENGINES = ("onnx", "openvino")
LABELED = ("classify", "multilabel", "tag")


def model_of(folder: Path, heads: tuple[HeadKind, ...] = HEADS, **changes: Any) -> Checkpoint:
    """Random weights, far enough from zero for answers to differ; adapters too."""
    pieces = tokenizer(folder / "tokenizer")
    encoder = EncoderConfig(**({"vocab_size": pieces.vocab_size} | SHAPE | changes))
    chosen = tuple(
        HeadConfig(kind=kind, labels=LABELS if kind in LABELED else ()) for kind in heads
    )
    torch.manual_seed(0)
    model = Model(ModelConfig(encoder=encoder, heads=chosen)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "adapters" in name or "norm" in name or "bias" in name:
                weight += 0.1 * torch.randn_like(weight)
    return Checkpoint(model=model, tokenizer=pieces)


def pair_of(
    checkpoint: Checkpoint, folder: Path, engine: str, **options: Any
) -> tuple[Predictor, Predictor]:
    """The same model in torch and exported."""
    checkpoint.save(folder / "model")
    export_folder(checkpoint, folder / "exported", ExportOptions(runtime=engine, **options))
    return load(folder / "model", engine="torch", device="cpu"), load(folder / "exported")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_computes_what_torch_computes(tmp_path: Path, plan: str, engine: str) -> None:
    checkpoint = model_of(tmp_path, ("masked", "classify"), **PLANS[plan])
    ours, exported = pair_of(checkpoint, tmp_path, engine)
    assert exported.engine.name == engine
    inputs = texts(12)
    np.testing.assert_allclose(exported.embed(inputs), ours.embed(inputs), atol=2e-5)
    first = exported.embed(inputs, pooling="cls")
    np.testing.assert_allclose(first, ours.embed(inputs, pooling="cls"), atol=2e-5)
    labels = [each.probabilities for each in ours.classify(inputs)]
    assert [each.probabilities for each in exported.classify(inputs)] == [
        pytest.approx(each, abs=1e-5) for each in labels
    ]
    masked = ["the [MASK] sails", "a [MASK] and a [MASK] or the [MASK] whale", "[MASK]"]
    for theirs, mine in zip(exported.fill(masked), ours.fill(masked), strict=True):
        for guesses, expected in zip(theirs, mine, strict=True):
            assert [each.token for each in guesses] == [each.token for each in expected]
            assert [each.probability for each in guesses] == pytest.approx(
                [each.probability for each in expected], abs=1e-5
            )


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("engine", ENGINES)
def test_layers_in_one_call_are_the_layers_one_by_one(
    tmp_path: Path, plan: str, engine: str
) -> None:
    _, ours = pair_of(model_of(tmp_path, **PLANS[plan]), tmp_path, engine)
    stepping = ours.engine
    ids = np.random.default_rng(0).integers(5, stepping.tokenizer.vocab_size, (3, 7))
    mask = np.arange(7) < np.array([7, 4, 5])[:, None]
    for needed in (None, np.array([[0], [7], [14]])):
        arrays = {"token_ids": ids, "mask": mask}
        batch = HostBatch(
            arrays=arrays if needed is None else {**arrays, "needed": needed}, longest=7
        )
        states, last = stepping.start(batch), len(stepping.config.encoder.plan()) - 1
        for number in range(last + 1):
            states = stepping.layer(number, states, batch, last=number == last)
        assert np.array_equal(stepping.states(batch), stepping.finish(states))


@pytest.mark.parametrize("plan", ["rotary", "split adapters"])
def test_layers_declare_the_width_that_they_compute(tmp_path: Path, plan: str) -> None:
    """The runtime of browsers refuses a graph that computes another shape than it says."""
    export_folder(model_of(tmp_path, **PLANS[plan]), tmp_path / "onnx", ExportOptions())
    graphs = [onnx.load(path).graph for path in (tmp_path / "onnx").glob("*.onnx")]
    outputs = [out for graph in graphs for out in graph.output if out.name == "out"]
    assert outputs
    widths = {out.type.tensor_type.shape.dim[-1].dim_value for out in outputs}
    assert widths == {SHAPE["hidden_size"]}


def test_rotary_positions_are_one_operation_of_each_runtime(tmp_path: Path) -> None:
    """Written out they would take a sixth of a small model's time."""
    checkpoint = model_of(tmp_path, ("classify",), **PLANS["rotary"])
    for engine in ENGINES:
        export_folder(checkpoint, tmp_path / engine, ExportOptions(runtime=engine))
    (loop,) = (
        node
        for node in onnx.load(tmp_path / "onnx" / "layer-0.onnx").graph.node
        if node.op_type == "Loop"
    )
    repeated = [node.op_type for node in loop.attribute[0].g.node]
    assert repeated.count("RotaryEmbedding") == 2
    assert not {"Mod", "Shape"} & set(repeated), "positions are known before the first layer"

    head = HeadConfig(kind="classify", labels=LABELS, exits="one")  # without a loop
    config = replace(checkpoint.model.config, heads=(head,))
    early = Checkpoint(model=Model(config).eval(), tokenizer=checkpoint.tokenizer)
    export_folder(early, tmp_path / "early", ExportOptions(runtime="openvino"))
    compiled = openvino_graphs.CORE.compile_model(tmp_path / "early" / "layer-0.xml", "CPU")
    kinds = [each.get_rt_info()["layerType"] for each in compiled.get_runtime_model().get_ops()]
    assert kinds.count("RoPE") == 2


def test_what_does_not_change_is_computed_before_a_loop() -> None:
    def layer() -> Graph:
        graph = Graph()
        states = graph.input("states", np.float32, ("rows", 2))
        length = graph.op("Shape", graph.input("bias", np.float32, ("seq",)))
        factor = graph.op("Cast", length, to=onnx.TensorProto.FLOAT)
        weight = graph.op("Neg", graph.constant("weight", np.float32(-1)))
        product = graph.op("Mul", graph.op("Mul", states, factor), weight)
        graph.output(product, "out", np.float32, ("rows", 2))
        return graph

    looped = layer().repeated("states", "out").to_bytes("looped")
    nodes = onnx.load_from_string(looped).graph.node
    assert [node.op_type for node in nodes] == ["Shape", "Cast", "Loop"]
    inside = [node.op_type for node in nodes[-1].attribute[0].g.node]
    assert "Neg" in inside, "a constant stays beside its reader"
    session = onnxruntime.InferenceSession(looped)
    inputs = {"states": np.ones((1, 2), np.float32), "bias": np.zeros(3, np.float32)}
    (out,) = session.run(None, inputs | {"count": np.array(4)})
    assert out.tolist() == [[81.0, 81.0]]


def test_no_weight_is_stored_twice(tmp_path: Path) -> None:
    for plan, changes in PLANS.items():
        checkpoint = model_of(tmp_path, HEADS, **(changes | {"hidden_size": 256, "ffn_size": 512}))
        out = tmp_path / plan
        export_folder(checkpoint, out)
        weights = 4 * sum(each.numel() for each in checkpoint.model.parameters())
        graphs = [path for path in out.iterdir() if path.suffix in (".onnx", ".npy")]
        assert sum(path.stat().st_size for path in graphs) < 1.1 * weights, plan


CALLS: dict[HeadKind, Any] = {
    "classify": lambda model: model.classify(texts(8)),
    "multilabel": lambda model: model.pair(texts(8), texts(8, seed=1)),
    "regress": lambda model: model.regress(texts(8)),
    "choose": lambda model: model.choose(
        context=texts(3), question=["who?", "", "where?"], options=[["a", "b"], ["c"] * 3, "xy"]
    ),
    "span": lambda model: model.answer(question=["who?"] * 4, context=texts(4, seed=3)),
    "joint_span": lambda model: model.answer(question=["who?"] * 4, context=texts(4, seed=3)),
    "tag": lambda model: model.tag(texts(4)),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("head", CALLS)
def test_every_head_predicts_what_torch_predicts(
    tmp_path: Path, head: HeadKind, engine: str
) -> None:
    checkpoint = model_of(tmp_path, (head, "order"), norm="pre", positions="rotary")
    ours, exported = pair_of(checkpoint, tmp_path, engine)
    assert_close(CALLS[head](exported), CALLS[head](ours))


def assert_close(theirs: Any, ours: Any) -> None:
    """The same predictions, numbers to within rounding."""
    if isinstance(ours, float):
        assert theirs == pytest.approx(ours, abs=1e-4)
    elif isinstance(ours, list | tuple):
        assert len(theirs) == len(ours)
        for one, other in zip(theirs, ours, strict=True):
            assert_close(one, other)
    elif isinstance(ours, dict):
        assert_close(list(theirs.values()), list(ours.values()))
    elif is_dataclass(ours):
        for field in fields(ours):
            assert_close(getattr(theirs, field.name), getattr(ours, field.name))
    else:
        assert theirs == ours


@pytest.mark.parametrize("engine", ENGINES)
def test_int8_is_close_and_a_quarter_of_the_size(tmp_path: Path, engine: str) -> None:
    checkpoint = model_of(
        tmp_path, ("masked", "classify"), hidden_size=256, ffn_size=1024, init_std=0.05
    )
    ours, exported = pair_of(checkpoint, tmp_path, engine, precision="int8")
    first, second = (each.embed(texts(12), normalize=True) for each in (ours, exported))
    assert (first * second).sum(1).min() > 0.99
    assert np.abs(first - second).max() > 0  # it is not the float32 graph
    files = (tmp_path / "exported").glob("layer*")
    sizes = [path.stat().st_size for path in files if path.suffix in (".onnx", ".bin")]
    layer = sum(each.numel() for each in checkpoint.model.encoder.attentions[0].parameters())
    layer += sum(each.numel() for each in checkpoint.model.encoder.feed_forwards[0].parameters())
    assert sum(sizes) < 1.15 * layer


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_share_an_engine(tmp_path: Path, engine: str) -> None:
    ours, exported = pair_of(model_of(tmp_path, ("classify",)), tmp_path, engine)
    expected = ours.embed(texts(16))
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: exported.embed(texts(16)), range(16)))
    for each in results:
        np.testing.assert_allclose(each, expected, atol=2e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_may_drop_rows_and_join_depths(tmp_path: Path, engine: str) -> None:
    """Rows of a batch are independent between layers, and a shared layer takes rows of any
    depth."""
    ours, exported = pair_of(model_of(tmp_path, ("classify",)), tmp_path, engine)
    for predictor in (ours, exported):
        steps, ids = predictor.engine, np.arange(5, 29).reshape(4, 6)
        batch = HostBatch(arrays={"token_ids": ids}, longest=6)
        half = HostBatch(arrays={"token_ids": ids[:2]}, longest=6)
        zero = steps.start(batch)
        one = steps.layer(0, zero, batch)
        np.testing.assert_allclose(steps.layer(0, zero[:2], half), one[:2], atol=1e-5)
        joined = np.concatenate([np.asarray(zero[:2]), np.asarray(one[:2])])
        if predictor is exported:
            mixed = steps.layer(1, joined, batch)
            np.testing.assert_allclose(mixed[:2], one[:2], atol=1e-5)
            np.testing.assert_allclose(mixed[2:], steps.layer(1, one, batch)[:2], atol=1e-5)


def test_odd_texts_are_answered(tmp_path: Path) -> None:
    ours, exported = pair_of(model_of(tmp_path, ("classify",)), tmp_path, "onnx")
    odd = ["☃☃☃", "the whale " * 10_000]
    np.testing.assert_allclose(exported.embed(odd), ours.embed(odd), atol=2e-5)
    assert exported.embed([]).shape == (0, 32)
    with pytest.raises(DataError, match="the text for embed is empty"):
        exported.embed("")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    export_folder(model_of(folder, ("classify",)), folder / "model")
    return folder / "model"


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def test_a_damaged_graph_is_refused(copied: Path) -> None:
    with (copied / "layer-0.onnx").open("r+b") as file:
        file.seek(200)
        file.write(b"\0\0\0\0")
    with pytest.raises(CheckpointError, match="does not have the sha256"):
        load(copied)
    (copied / "layer-0.onnx").write_bytes(b"no graph")
    with pytest.raises(CheckpointError, match=r"graph layer-0 in .* does not run: .*export the"):
        load(copied, unverified=True).embed("the whale")
    (copied / "layer-0.onnx").unlink()
    with pytest.raises(CheckpointError, match=r"layer-0.onnx cannot be read .*litebert export"):
        load(copied, unverified=True).embed("the whale")
    (copied / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"no manifest.json.*--unverified"):
        load(copied)


def test_a_graph_of_another_model_is_refused(copied: Path, tmp_path: Path) -> None:
    other = model_of(tmp_path, ("classify",), hidden_size=48, num_attention_heads=4)
    wrong = tmp_path / "other"
    export_folder(other, wrong)
    shutil.copy(wrong / "layer-0.onnx", copied / "layer-0.onnx")
    with pytest.raises(CheckpointError, match="damaged or of another model"):
        load(copied, unverified=True).embed("the whale")
    np.save(copied / "token_table.npy", np.zeros((3, 4), np.float32))
    with pytest.raises(CheckpointError, match=r"shape \(3, 4\), config.json asks for float32"):
        load(copied, unverified=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_graph_that_was_replaced_after_the_load_is_refused(tmp_path: Path, engine: str) -> None:
    for name in ("one", "other"):
        checkpoint = model_of(tmp_path, ("classify",), init_std=0.1 if name == "one" else 0.2)
        export_folder(checkpoint, tmp_path / name, ExportOptions(runtime=engine))
    predictor = load(tmp_path / "one")
    predictor.embed("the whale")
    for path in (tmp_path / "other").glob("pooled.*"):
        shutil.copy(path, tmp_path / "one")
    with pytest.raises(CheckpointError, match="has changed since the export was loaded"):
        predictor.classify("the whale")


def test_a_graph_that_reads_other_files_is_refused(copied: Path) -> None:
    graph = onnx.load(str(copied / "layer-0.onnx"))
    onnx.save_model(
        graph,
        str(copied / "layer-0.onnx"),
        save_as_external_data=True,
        location="weights",
        size_threshold=0,
    )
    with pytest.raises(CheckpointError, match="keeps weights in another file"):
        load(copied, unverified=True).embed("the whale")


def test_weights_may_hold_any_bytes_and_nothing_else_a_reference() -> None:
    word = np.frombuffer(b"location", np.int8)
    entry = onnx.StringStringEntryProto(key="location", value="other")
    for where in ("weights", "tensor", "sparse", "attribute", "metadata", "function"):
        tensor = onnx.numpy_helper.from_array(word, "w")
        node = onnx.helper.make_node("Identity", ["w"], ["y"])
        if where == "tensor":
            tensor.external_data.append(entry)
        if where == "attribute":
            inner = onnx.numpy_helper.from_array(word, "v")
            node = onnx.helper.make_node("Constant", [], ["y"], value=inner)
        graph = onnx.helper.make_graph([node], "g", [], [], [tensor])
        if where == "sparse":
            graph.sparse_initializer.append(onnx.SparseTensorProto(values=tensor))
        model = onnx.helper.make_model(graph)
        if where == "metadata":
            model.metadata_props.append(entry)
        if where == "function":
            model.functions.append(onnx.FunctionProto(name="location"))
        data = model.SerializeToString()
        assert reads_other_files(data) == (where != "weights"), where
        assert reads_other_files(data[:-1]), where  # cut off: all is searched


def test_a_graph_larger_than_its_model_is_refused(copied: Path) -> None:
    with (copied / "layer-0.onnx").open("ab") as file:
        file.truncate(2**30)  # sparse
    with pytest.raises(CheckpointError, match=r"has 1,073,741,824 bytes, the model of config.json"):
        load(copied, unverified=True).embed("the whale")


def test_a_wrong_header_says_what_is_wrong(copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    for changes, message in (
        ({"version": 9}, "an export of version 9"),
        ({"export": {"runtime": "tensorrt", "precision": "int8"}}, "runtime is one of onnx"),
        ({"export": None}, "export is an object"),
        ({"encoder": {}}, "damaged|belong"),
    ):
        (copied / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(CheckpointError, match=message):
            load(copied, unverified=True)


def test_engines_that_do_not_fit_are_refused(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exported for onnx, and --engine asks for openvino"):
        load(exported, engine="openvino")
    with pytest.raises(ConfigError, match="there is no engine 'onix'; did you mean 'onnx'"):
        load(exported, engine="onix")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the engine onnx has no torch module"):
        _ = load(exported).model
    reversible = model_of(tmp_path, ("classify",), reversible=True, norm="pre")
    with pytest.raises(
        ConfigError,
        match="two streams of states, are computed by torch",
    ):
        export_folder(reversible, tmp_path / "out")
    with pytest.raises(CheckpointError, match="can only predict; give the checkpoint"):
        load_checkpoint(exported)


def test_full_int8_needs_a_processor_that_adds_without_saturating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = model_of(tmp_path, ("classify",), hidden_size=64)
    with_vnni, without = frozenset({"avx2", "avx512_vnni"}), frozenset({"avx2"})
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(cpu, "cpu_features", lambda: with_vnni)
    full, reduced = tmp_path / "full", tmp_path / "reduced"
    export_folder(checkpoint, full, ExportOptions(precision="int8"))
    assert load(full).embed("the whale").shape == (64,)
    monkeypatch.setattr(cpu, "cpu_features", lambda: without)
    with pytest.raises(CheckpointError, match="int8 for processors with VNNI, and this one has"):
        load(full)
    export_folder(checkpoint, reduced, ExportOptions(precision="int8"))
    for features in (with_vnni, without):
        monkeypatch.setattr(cpu, "cpu_features", lambda chosen=features: chosen)
        assert load(reduced).embed("the whale").shape == (64,)


def test_the_command_exports_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = model_of(tmp_path, ("classify",)).save(tmp_path / "model")
    command = ["export", "--model", str(model), "--out", str(tmp_path / "out")]
    assert cli.run(command) == 0
    shown = capsys.readouterr().out
    assert "cosine to float32: 1.00000 on average" in shown
    assert "no score was compared" in shown
    assert cli.run(command) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert cli.run([*command[:-1], str(tmp_path / "out8"), "--int8", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["cosine"] > 0.98
    assert cli.run(["classify", "the whale", "--model", str(tmp_path / "out"), "--json"]) == 0
    expected = load(model, engine="torch").classify("the whale")
    answer = json.loads(capsys.readouterr().out)["answers"][0]
    assert answer["label"] == expected.label


def test_the_score_before_and_after_is_reported_and_a_loss_refused(
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
    command = ["export", "--model", str(model), "--data", str(data), "--int8", "--format"]
    for engine in (*ENGINES, "web"):
        assert cli.run([*command, engine, "--json", "--out", str(tmp_path / engine)]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["score"], report["before"]) == ("accuracy", 1.0)
        assert 0.9 < report["after"] <= 1.0
    monkeypatch.setattr(check, "_score", lambda engine, *_: 0.8 + 0.1 * (engine.name == "torch"))
    bad = [*command, "onnx", "--out", str(tmp_path / "bad")]
    assert cli.run(bad) == 3
    message = "accuracy falls by 10.0 points, from 90.0 to 80.0, and 0.5 are allowed"
    assert message in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()
    assert cli.run([*bad, "--force"]) == 0
    assert "accuracy: 90.0 before, 80.0 after, over 40 examples" in capsys.readouterr().out


def test_dev_is_what_the_model_was_fine_tuned_with(tmp_path: Path) -> None:
    checkpoint = model_of(tmp_path, ("classify",))
    task = Task(name="classify", kind="classify", scores=("accuracy",), labels=LABELS,
                head="classify")  # fmt: skip
    card = TaskCard(
        task=task, max_length=64, columns={"text": ("body",)}, cut={"dev_fraction": 0.5}
    )
    checkpoint = replace(checkpoint, task=card.to_dict())
    rows = [f"title {n},{text},{LABELS[n % 3]}\n" for n, text in enumerate(texts(40))]
    table = tmp_path / "data.csv"
    table.write_text("".join(["text,body,label\n", *rows]))
    cut = check.read_data(checkpoint, str(table))
    assert len(cut.examples) == 20
    assert not any(text.startswith("title") for text in cut.texts)
    assert "text is 'body'" in " ".join(cut.notes)
    folder = tmp_path / "data"
    folder.mkdir()
    table.rename(folder / "train.csv")
    (folder / "dev.csv").write_text("".join(["text,body,label\n", *rows[:9]]))
    (folder / "test.csv").write_text("body\nwithout a label\n")
    report = export_folder(checkpoint, tmp_path / "out", ExportOptions(data=str(folder)))
    assert (report.examples, report.before) == (9, report.after)


def test_a_benchmarks_numbers_are_the_names_that_the_model_has(tmp_path: Path) -> None:
    labels = ("negative", "positive")
    base = model_of(tmp_path, ("masked",))
    head = HeadConfig(kind="classify", labels=labels)
    model = Model(ModelConfig(encoder=base.model.config.encoder, heads=(head,))).eval()
    task = replace(BENCHMARKS["sst2"].task, labels=labels)
    card = TaskCard(task=task, max_length=64).to_dict()
    checkpoint = Checkpoint(model=model, tokenizer=base.tokenizer, task=card)
    folder = checkpoint.save(tmp_path / "model")
    predicted = [each.label for each in load(folder).classify(texts(4))]  # type: ignore[union-attr]
    data = tmp_path / "SST-2"
    data.mkdir()
    rows = [
        f"{text}\t{labels.index(label)}\n" for text, label in zip(texts(4), predicted, strict=True)
    ]
    (data / "dev.tsv").write_text("".join(["sentence\tlabel\n", *rows]))
    for whole in (False, True):
        options = ExportOptions(data=str(data), whole=whole)
        report = export_folder(checkpoint, tmp_path / f"out-{whole}", options)
        assert (report.score, report.before, report.after) == ("accuracy", 1.0, 1.0)


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(model_of(tmp_path, ("classify",)).save(tmp_path / "model"))
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file" / "out", tmp_path / ("x" * 300)):
        assert cli.run(["export", "--model", model, "--out", str(out)]) == 3
        assert "cannot be written (" in capsys.readouterr().err


@pytest.mark.parametrize("value", [0, "2", 1.5, True])
def test_numbers_that_are_none_are_refused(exported: Path, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"threads is a number from 1 to 1024; got {value!r}"):
        load(exported, threads=value)
    if isinstance(value, int):  # the tests' own check of types refuses the others
        with pytest.raises(ConfigError, match=f"batch_tokens is a whole .* got {value!r}"):
            load(exported, batch_tokens=value)


def test_a_model_without_a_task_is_checked_by_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = model_of(tmp_path, ("masked",)).save(tmp_path / "model")
    data, empty = tmp_path / "data.txt", tmp_path / "empty.txt"
    data.write_text("\n".join(texts(5)))
    empty.write_text("\n")
    command = ["export", "--model", str(model), "--out", str(tmp_path / "out"), "--data"]
    assert cli.run([*command, str(tmp_path / "absent.txt")]) == 3
    assert "no such file" in capsys.readouterr().err
    assert cli.run([*command, str(data)]) == 0
    assert f"over 5 texts of {data}" in capsys.readouterr().out


@pytest.mark.parametrize("whole", [False, True])
def test_a_model_tuned_for_embeddings_is_scored_by_pairs(tmp_path: Path, whole: bool) -> None:
    card = EmbedCard(pooling="cls").to_dict()
    checkpoint = replace(model_of(tmp_path, ("masked",)), task=card)
    table = tmp_path / "sts.csv"
    rows = [
        f"{n},news,{first},{second},{n % 5}.0\n"
        for n, (first, second) in enumerate(zip(texts(30), texts(30, seed=1), strict=True))
    ]
    table.write_text("".join(["id,genre,sentence1,sentence2,score\n", *rows]))
    options = ExportOptions(data=str(table), whole=whole)
    report = export_folder(checkpoint, tmp_path / "out", options)
    assert (report.score, report.examples, report.texts) == ("spearman", 30, 60)
    expected = score_similarity(load(checkpoint.save(tmp_path / "model")), str(table))
    assert report.before == pytest.approx(expected.scores["spearman"])
    assert report.after == pytest.approx(report.before, abs=1e-3)
    # the texts alone of a table without scores, whatever else it holds
    table.write_text(
        "".join(["id,genre,text\n", *(f"{n},news,{t}\n" for n, t in enumerate(texts(6)))])
    )
    read = check.read_data(checkpoint, str(table))
    assert (list(read.texts), read.task) == (texts(6), None)


def test_ranges_clip_outliers_where_that_errs_less() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(size=1_000_000), [20.0]])
    counts, _ = np.histogram(values, bins=BINS, range=(-6, 20))
    low, high = best_range(counts.astype(np.float64), -6, 20)

    def error(low: float, high: float) -> float:
        step = (high - low) / 255
        return float(((np.clip(np.round(values / step) * step, low, high) - values) ** 2).sum())

    assert high < 15
    assert error(low, high) < 0.7 * error(-6, 20)


def test_openvino_says_why_a_graph_does_not_run(tmp_path: Path) -> None:
    checkpoint = model_of(tmp_path, ("classify",))
    export_folder(checkpoint, tmp_path / "out", ExportOptions(runtime="openvino"))
    weights = tmp_path / "out" / "layer-0.bin"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"does not run: (?!Exception from).*; it is damaged"):
        load(tmp_path / "out", unverified=True).embed("the whale")


NO_PICKLE = """
import pickle, sys
import litebert, onnxruntime
from litebert.data.shards import Shards

def forbid(event, args):
    if event == "pickle.find_class":
        raise RuntimeError("unpickled")

data = pickle.dumps(Shards)
sys.addaudithook(forbid)
Shards.open(sys.argv[1], verify=True).tokenizer()
assert litebert.load(sys.argv[2]).classify(["a day"])
try:
    pickle.loads(data)
except RuntimeError:
    sys.exit(0)  # the hook is awake
sys.exit(1)
"""


def test_nothing_is_unpickled_while_shards_or_an_export_load(tmp_path: Path) -> None:
    model, out = save_model(tmp_path / "model", "classify"), tmp_path / "export"
    assert cli.run(["export", "--model", str(model), "--out", str(out)]) == 0
    words = [sys.executable, "-c", NO_PICKLE, str(tiny_shards(tmp_path)), str(out)]
    assert subprocess.run(words, check=False).returncode == 0
