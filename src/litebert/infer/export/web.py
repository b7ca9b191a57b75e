"""litebert export --format web: a checkpoint in; a static folder that predicts in a browser out.

    index.html, page.js, page.css       a page to try the model
    litebert.js and the other modules   load, fill, classify, pair, regress, embed
    config.json, spiece.model, cleanup.json, *.onnx, *.bin
    package.json                        names onnxruntime-web, which `npm install` fetches

The graphs are those of the engines, but for the two that read the token table: there JavaScript
takes its rows, and compares with it, so that the table is stored once and never copied. Weights are
uint8 around 128 in int8: every processor's products of these are exact.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from litebert.config import WEB_FORMAT, ModelConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.files import to_json
from litebert.infer.engine import Engine
from litebert.infer.export.graph import Quantization
from litebert.infer.export.network import Network, Weights, exported_config, weights_of
from litebert.infer.export.parts import PartWriter, write_tensors
from litebert.infer.exported import CONFIG, SCALES, TABLE, Exported, ExportHeader, Precision
from litebert.infer.graph_engine import Arrays, GraphEngine
from litebert.infer.onnx_graphs import OnnxGraphs
from litebert.infer.plan import adapter_shapes, head_graphs, layer_graphs, rotation_tables
from litebert.infer.verbs import Verb, supported_verbs, task_cards, unused_character
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import EmbedCard, TaskCard, is_embed_card
from litebert.text.tables import cleanup_tables
from litebert.text.tokenizer import MODEL_FILE, Tokenizer

VERSION = 1
VERBS: tuple[Verb, ...] = ("fill", "embed", "classify", "pair", "regress")
"""What the JavaScript can do."""
BIAS = "masked_bias"
PAGE = Path(__file__).with_name("browser")
"""The files that are the same for every model."""
_CLEANUP_FILE = "cleanup.json"


def write_web(checkpoint: Checkpoint, folder: Path, *, int8: bool) -> Engine:
    """Write the files into a folder that the caller publishes. The engine that comes back runs its
    graphs as the JavaScript does, to compare them with the checkpoint."""
    config, weights = _web_config(checkpoint.model.config), weights_of(checkpoint)
    tokenizer = _tokenizer(checkpoint)
    precision: Precision = "int8" if int8 else "float32"
    card = _task_card(checkpoint)
    cards = task_cards(config, card)
    verbs = _check_verbs(supported_verbs(config, cards))
    quantization = Quantization(precision="dynamic", unsigned=True) if int8 else Quantization()
    tensors = _tensors(config, weights, quantization)
    for name, values in tensors.items():
        _write_tensor(folder / f"{name}.bin", values)
    graphs = _WebWriter(Network(config, weights), quantization).all()
    for name, data in graphs.items():
        (folder / f"{name}.onnx").write_bytes(data)
    settings = {
        "format": WEB_FORMAT,
        "version": VERSION,
        "precision": precision,
        "verbs": verbs,
        "tasks": {verb: _task(cards[verb]) for verb in verbs if verb in cards},
        "embed": _embedding(checkpoint),
        "hidden_size": config.encoder.hidden_size,
        "max_positions": config.encoder.max_positions,
        "has_exits": any(head.exits != "none" for head in config.heads),
        "has_final": config.encoder.norm == "pre",
        "graphs": list(graphs),
        "plan": _plan(config),
        "tensors": {name: _describe(values) for name, values in tensors.items()},
        "tokenizer": tokenizer_settings(tokenizer),
    }
    _write_json(folder / CONFIG, settings, indent=1)
    _write_json(folder / _CLEANUP_FILE, cleanup_tables(tokenizer.rules))
    (folder / MODEL_FILE).write_bytes(tokenizer.model)
    for path in PAGE.iterdir():
        shutil.copyfile(path, folder / path.name)
    return _engine(folder, config, tensors, tokenizer, checkpoint.task, precision)


def _web_config(config: ModelConfig) -> ModelConfig:
    """Without the order of segments, which only pretraining reads."""
    config = exported_config(config)
    return replace(config, heads=tuple(head for head in config.heads if head.kind != "order"))


# ---- graphs and tensors


class _WebWriter(PartWriter):
    """Graphs that get rows of the token table, and give what is compared with it."""

    def embedding(self) -> bytes:
        graph = self.graph()
        shape = ("batch", "seq", self.encoder.embedding_size)
        tokens = graph.input("tokens", np.float32, shape)
        segment_ids = graph.input("segment_ids", np.int64, ("batch", "seq"))
        return self.finish(graph, self.network.embed(graph, tokens, segment_ids), "embedding")

    def masked(self) -> bytes:
        graph = self.graph()
        states = graph.input("states", np.float32, ("masked", self.encoder.hidden_size))
        query = self.network.masked_query(graph, states)
        graph.output(query, "query", np.float32, ("masked", self.encoder.embedding_size))
        return graph.to_bytes("masked")


class _WebGraphs(OnnxGraphs):
    """What the JavaScript does between the graphs, in numpy."""

    loops = False

    def run(self, graph: str, inputs: Arrays) -> dict[str, np.ndarray]:
        if graph not in ("embedding", "masked"):
            return super().run(graph, inputs)
        table, scales = inputs[TABLE], inputs.get(SCALES)
        if graph == "embedding":
            ids = inputs["token_ids"]
            rows = table[ids].astype(np.float32)
            rows = rows if scales is None else rows * scales[ids]
            return super().run(graph, {"tokens": rows, "segment_ids": inputs["segment_ids"]})
        query = super().run(graph, {"states": inputs["states"]})["query"]
        logits = query @ table.T.astype(np.float32)
        logits = logits if scales is None else logits * scales[:, 0]
        return {"logits": logits + self._exported.tensors[BIAS]}


def _engine(
    folder: Path,
    config: ModelConfig,
    tensors: Mapping[str, np.ndarray],
    tokenizer: Tokenizer,
    task: Mapping[str, Any] | None,
    precision: Precision,
) -> Engine:
    exported = Exported(
        folder=folder,
        header=ExportHeader(runtime="onnx", precision=precision),
        config=config,
        tensors=tensors,
        tokenizer=tokenizer,
        task=task,
    )
    return GraphEngine(exported, _WebGraphs(exported))


def _tensors(
    config: ModelConfig, weights: Weights, quantization: Quantization
) -> dict[str, np.ndarray]:
    tensors = write_tensors(config, weights, quantization) | rotation_tables(config.encoder)
    if "masked" in head_graphs(config):
        tensors[BIAS] = weights["heads.masked.bias"]
    return tensors


def _write_tensor(path: Path, values: np.ndarray) -> None:
    path.write_bytes(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())


def _describe(values: np.ndarray) -> dict[str, Any]:
    return {"type": values.dtype.name, "shape": list(values.shape)}


# ---- what config.json says


def _plan(config: ModelConfig) -> list[list[dict[str, Any]]]:
    """For each application of a layer its graphs, and what they read beside the states."""
    return [
        [
            {
                "graph": graph.name,
                "attends": graph.attention is not None,
                "adapters": list(adapter_shapes(config.encoder, graph.adapted)),
            }
            for graph in graphs
        ]
        for graphs in layer_graphs(config.encoder)
    ]


def _task(card: TaskCard) -> dict[str, Any]:
    return {
        "name": card.task.name,
        "head": card.task.head,
        "labels": list(card.task.labels),
        "max_length": card.max_length,
        "label_threshold": card.label_threshold,
        "temperature": card.temperature,
        "exits": {name: dict(numbers) for name, numbers in card.exits.items()},
        "exit_tolerance": card.exit_tolerance,
    }


def _embedding(checkpoint: Checkpoint) -> dict[str, Any]:
    task, card = checkpoint.task, EmbedCard(normalize=False)
    if task is not None and is_embed_card(task):
        card = EmbedCard.from_dict(dict(task))
    return {**asdict(card), "dimensions": list(card.dimensions)}


def _task_card(checkpoint: Checkpoint) -> TaskCard | None:
    task = checkpoint.task
    return None if task is None or is_embed_card(task) else TaskCard.from_dict(dict(task))


def _check_verbs(verbs: tuple[Verb, ...]) -> list[Verb]:
    unknown = [verb for verb in verbs if verb not in VERBS]
    if unknown:
        raise ConfigError(
            f"a browser cannot {' or '.join(unknown)} yet, it can {', '.join(VERBS)}; export this "
            "model with --format onnx"
        )
    return list(verbs)


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    if checkpoint.tokenizer is None:
        raise CheckpointError(
            "the model has no tokenizer beside it; copy its spiece.model into the folder to "
            "predict from texts"
        )
    return checkpoint.tokenizer


def tokenizer_settings(tokenizer: Tokenizer) -> dict[str, Any]:
    ids = {name: getattr(tokenizer, f"{name}_id") for name in ("pad", "unk", "cls", "sep", "mask")}
    return {
        "rules": asdict(tokenizer.rules),
        "special": ids,
        "splits": {str(index): ids for index, ids in tokenizer.splits.items()},
        "stand_in": unused_character(tokenizer),
    }


def _write_json(path: Path, value: Any, indent: int | None = None) -> None:
    path.write_text(to_json(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")
