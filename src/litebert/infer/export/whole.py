"""litebert export --whole: one ordinary graph for any runtime, in the Hub's layout.

    config.json, tokenizer.json …     as transformers reads them; a modeling file where it needs one
    modules.json, 1_Pooling …         for sentence-transformers, of a model tuned for embeddings
    onnx/model.onnx                   float32
    onnx/model_qint8_avx512_vnni.onnx, model_quint8_avx2.onnx, model_qint8_arm64.onnx

In go input_ids, attention_mask and token_type_ids, int64 of (batch, sequence). Out come logits of
the task's head (start_logits and end_logits of spans), else last_hidden_state. The layers are
written out one after another, but each weight is stored once.
"""

import shutil
from pathlib import Path

import numpy as np

from litebert.config import POOLED_HEADS, ModelConfig
from litebert.convert.custom_code import MODEL_TYPE, MODELING_FILE
from litebert.convert.huggingface_writer import (
    to_huggingface,
    write_sentence_modules,
    write_tokenizer,
)
from litebert.errors import ConfigError
from litebert.files import to_json
from litebert.infer.cpu import Processor
from litebert.infer.export.graph import Graph, Quantization, integers
from litebert.infer.export.network import (
    Network,
    Weights,
    adapter_tensors,
    exported_config,
    weights_of,
)
from litebert.infer.plan import rotation_tables
from litebert.storage.checkpoint import CONFIG, Checkpoint

FILES: dict[str, Quantization] = {
    "model.onnx": Quantization(),
    "model_qint8_avx512_vnni.onnx": Quantization(precision="dynamic"),
    "model_quint8_avx2.onnx": Quantization(precision="dynamic", unsigned=True),
    "model_qint8_arm64.onnx": Quantization(precision="dynamic"),
}
"""The float32 graph, then those in int8, by processor."""
EXACT: dict[Processor, tuple[str, ...]] = {
    "vnni": ("model.onnx", "model_qint8_avx512_vnni.onnx", "model_quint8_avx2.onnx"),
    "avx2": ("model.onnx", "model_quint8_avx2.onnx"),
    "arm64": ("model.onnx", "model_qint8_arm64.onnx"),
}
"""By processor those that can be checked on it: full int8 weights saturate without VNNI."""
FOLDER = "onnx"
_IDS = ("batch", "sequence")


def write_whole(checkpoint: Checkpoint, folder: Path, *, int8: bool) -> None:
    """Write the files into a folder that the caller publishes."""
    config, weights = exported_config(checkpoint.model.config), weights_of(checkpoint)
    names = tuple(FILES) if int8 else ("model.onnx",)
    (folder / FOLDER).mkdir()
    for name in names:
        data = whole_graph(config, weights, FILES[name])
        (folder / FOLDER / name).write_bytes(data)
    described = to_huggingface(checkpoint.model.config, checkpoint.model.state_dict())
    text = to_json(described.settings, indent=2, ensure_ascii=False)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    if described.settings["model_type"] == MODEL_TYPE:
        shutil.copyfile(MODELING_FILE, folder / MODELING_FILE.name)
    write_sentence_modules(folder, config.encoder, checkpoint.task)
    if checkpoint.tokenizer is not None:
        write_tokenizer(folder, checkpoint.tokenizer, config.encoder)


def whole_graph(config: ModelConfig, weights: Weights, quantization: Quantization) -> bytes:
    """The bytes of one graph."""
    network, graph, encoder = Network(config, weights), Graph(quantization), config.encoder
    ids, mask, segment_ids = (
        graph.input(name, np.int64, _IDS)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    head = _head(config)
    states = network.embed(graph, _tokens(graph, weights, ids), segment_ids)
    shared: dict[str, str] = {
        "bias": _bias(graph, mask),
        **{
            name: _wide(graph, graph.constant(name, table), ids)
            for name, table in rotation_tables(encoder).items()
        },
    }
    adapters, plan = adapter_tensors(encoder, weights), encoder.plan()
    for number, (attention, feed_forward) in enumerate(plan):
        inputs = shared | {
            name: graph.constant(f"{name} {number}", stacked[number])
            for name, stacked in adapters.items()
        }
        if head in POOLED_HEADS and number == len(plan) - 1:
            inputs["needed"] = _first_positions(graph, ids)
        states = network.attention(graph, attention, states, inputs)
        states = network.feed_forward(graph, feed_forward, states, inputs)
    _write_outputs(network, graph, network.final(graph, states), head)
    return graph.to_bytes("model")


def _head(config: ModelConfig) -> str | None:
    """The task's head; None for what pretraining leaves, an encoder."""
    kinds = [head.kind for head in config.heads if head.kind not in ("masked", "order")]
    if "joint_span" in kinds:
        raise ConfigError(
            "the joint span head chooses an end for each start, which one ordinary graph does not "
            "do; export without --whole"
        )
    if len(kinds) > 1:
        raise ConfigError(f"--whole writes one head; the model has {', '.join(kinds)}")
    return kinds[0] if kinds else None


def _write_outputs(network: Network, graph: Graph, states: str, head: str | None) -> None:
    if head is None:
        shape = (*_IDS, network.encoder.hidden_size)
        graph.output(states, "last_hidden_state", np.float32, shape)
    elif head in POOLED_HEADS:
        first = graph.op("Gather", states, graph.constant("first", np.int64(0)), axis=1)
        logits = network.pooled(graph, first, (head,))[head]
        graph.output(logits, "logits", np.float32, ("batch", "outputs"))
    elif head == "tag":
        logits = network.linear(graph, states, "heads.tag.output")
        graph.output(logits, "logits", np.float32, (*_IDS, "outputs"))
    else:
        logits = network.linear(graph, states, "heads.span.output")
        sides = graph.ops("Split", logits, count=2, axis=2, num_outputs=2)
        axis = graph.constant("last axis", np.array([2]))
        for side, name in zip(sides, ("start_logits", "end_logits"), strict=True):
            graph.output(graph.op("Squeeze", side, axis), name, np.float32, _IDS)


def _tokens(graph: Graph, weights: Weights, ids: str) -> str:
    """Rows of the token table."""
    name = "encoder.embedding.token"
    table = weights[f"{name}.weight"]
    if graph.quantization.precision == "float32":
        return graph.op("Gather", graph.constant(name, table), ids, axis=0)
    numbers, scales = integers(table, axis=0)
    rows = graph.op("Gather", graph.constant(name, numbers), ids, axis=0)
    steps = graph.op("Gather", graph.constant(f"{name}.scales", scales[:, None]), ids, axis=0)
    return graph.op("Mul", graph.op("Cast", rows, to=1), steps)


def _wide(graph: Graph, table: str, ids: str) -> str:
    """plan.wide_rotation of as many positions as there are columns."""
    zeros = graph.constant("zeros", np.zeros(1, np.int64))
    rows = graph.op("Slice", table, zeros, graph.op("Shape", ids, start=1, end=2))
    wide = graph.op("Concat", rows, rows, axis=-1)
    return graph.op("Unsqueeze", wide, graph.constant("rotation axes", np.array([0, 1])))


def _bias(graph: Graph, mask: str) -> str:
    """0 at real tokens, very low at padding, (batch, 1, 1, sequence)."""
    wide = graph.op("Unsqueeze", mask, graph.constant("mask axes", np.array([1, 2])))
    is_real = graph.op("Cast", wide, to=9)
    return graph.op(
        "Where",
        is_real,
        graph.constant("nothing", np.float32(0)),
        graph.constant("lowest bias", np.float32(-1e30)),
    )


def _first_positions(graph: Graph, ids: str) -> str:
    """Row-major positions of each row's [CLS], (batch, 1)."""
    zero, one = graph.constant("zero", np.int64(0)), graph.constant("one", np.int64(1))
    rows, length = (
        graph.op("Squeeze", graph.op("Shape", ids, start=axis, end=axis + 1)) for axis in (0, 1)
    )
    starts = graph.op("Mul", graph.op("Range", zero, rows, one), length)
    return graph.op("Unsqueeze", starts, graph.constant("column", np.array([1])))
