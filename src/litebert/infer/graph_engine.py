"""The engines of exported models, for ONNX Runtime and OpenVINO: a folder of graphs in, numbers and
predictions out. numpy between the graphs; no torch.

A batch is embedded, layer graphs are called as the plan says, and a head reads the last states.
Sharing costs nothing here: the graph of a layer applied twelve times is loaded once, and its
weights stay in the processor's cache. Of a model without exits one call applies it as often as
asked, a loop inside the graph: calls of their own take up to a third of a short text's time.
"""

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from litebert.config import POOLED_HEADS, Pooling
from litebert.infer.batches import FIRST, Columns, Row, row_batches
from litebert.infer.engine import Engine, EngineName, Part, check_engine
from litebert.infer.exits import predict_early
from litebert.infer.exported import SCALES, TABLE, Exported
from litebert.infer.plan import (
    LayerGraph,
    graph_names,
    layer_graphs,
    looped_graphs,
    repeats,
    rotation_tables,
    wide_rotation,
)
from litebert.packing import HostBatch, budget_batches
from litebert.shapes import Bool, Float, Int
from litebert.tasks.decode.decode import Batches, Outputs, Query, decode, softmax
from litebert.tasks.encode.encode import encode
from litebert.tasks.examples import TaskExample
from litebert.tasks.predictions import Prediction
from litebert.tasks.task import TaskCard

_BATCH_TOKENS = 2048
"""Padded tokens in a batch: its states then stay in a processor's cache."""
KEPT_TOKENS = 512
"""Tokens of a batch whose memory layers keep: asking the system for it again before each layer
takes up to half as long as the layer."""
_FILLED_AT_ONCE = 256
"""Masks whose logits are in memory at once: 30 MB with 30,000 tokens."""
LOWEST = np.float32(-1e30)
States = Float[np.ndarray, "_batch _seq hidden"]
Logits = Float[np.ndarray, "_batch outputs"]
Arrays = Mapping[str, np.ndarray]


class Graphs(ABC):
    """The graphs of a model in one runtime, each loaded when first run."""

    name: EngineName
    loops: bool = True
    """Whether one call may apply a layer several times (plan.looped_graphs)."""
    rotates: bool = False
    """Whether the runtime has an operator for rotary positions, which reads whole tables."""

    @abstractmethod
    def run(self, graph: str, inputs: Arrays) -> dict[str, np.ndarray]:
        """The outputs of a graph, by name. May be called from several threads at once."""

    @abstractmethod
    def release(self) -> None:
        """Give back memory that large batches needed. May be called while other threads run."""


class GraphEngine(Engine):
    """An exported model with its tokenizer."""

    def __init__(
        self, exported: Exported, graphs: Graphs, *, batch_tokens: int | None = None
    ) -> None:
        self.name = graphs.name
        self.config = exported.config
        self.batch_tokens = _BATCH_TOKENS if batch_tokens is None else batch_tokens
        self.tokenizer = check_engine(self.config, exported.tokenizer, self.batch_tokens)
        self.exported = exported
        self.lacks_generator = exported.header.lacks_generator
        self._graphs = graphs
        encoder = self.config.encoder
        self._plan = [
            tuple(_step(graph, depth, exported.tensors) for graph in graphs)
            for depth, graphs in enumerate(layer_graphs(encoder))
        ]
        self._looped = looped_graphs(self.config) if graphs.loops else set()
        self._repeats = repeats(self.config) if graphs.loops else [1] * len(self._plan)
        self._graph_names = graph_names(self.config)
        self._rotation = rotation_tables(encoder)
        self._last = threading.local()
        """A thread's last batch, and what its attention reads."""
        self._table = {
            name: exported.tensors[name] for name in (TABLE, SCALES) if name in exported.tensors
        }

    # ---- verbs

    def predict(self, card: TaskCard, examples: Sequence[TaskExample]) -> Sequence[Prediction]:
        try:
            if self.exit_rule is not None:
                return predict_early(self, self.exit_rule, card, examples)
            return self._predict(card, examples)
        finally:
            self.release()

    def _predict(self, card: TaskCard, examples: Sequence[TaskExample]) -> Sequence[Prediction]:
        card.check_fits(self.config)
        inputs = encode(card, examples, self.tokenizer)
        plan = budget_batches(inputs.lengths, tokens=self.batch_tokens, sizes=inputs.num_rows)

        def batches() -> Batches:
            for units in plan:
                batch = inputs.batch(units).padded()
                yield units, batch, self.head(batch, self.states(batch))

        return decode(Query(card=card, inputs=inputs, examples=examples, batches=batches()))

    def pool_into(
        self,
        vectors: Float[np.ndarray, "texts hidden"],
        stretches: Iterator[tuple[int, list[Row]]],
        pooling: Pooling,
    ) -> None:
        for start, rows in stretches:
            needed = [FIRST] * len(rows) if pooling == "cls" else None
            for numbers, states, batch in self.encode(rows, needed):
                vectors[start + numbers] = self.pool(states, batch.arrays.get("mask"), pooling)

    def hash_weights(self, digest: Any) -> None:
        """All of a folder's graphs and tensors."""
        suffixes = (".onnx", ".xml", ".bin", ".npy")
        for path in sorted(self.exported.folder.iterdir()):
            if path.suffix in suffixes and path.is_file():
                digest.update(path.name.encode())
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())

    def release(self) -> None:
        self._graphs.release()

    # ---- steps

    def states(self, batch: HostBatch) -> States:
        """The last states of a batch, all of them or those that its head needs."""
        states, number, all_layers = self.start(batch), 0, len(self._plan)
        # the last layer only where its states are read
        full = all_layers - 1 if "needed" in batch.arrays else all_layers
        while number < full:
            count = min(self._repeats[number], full - number)
            states = self._apply(number, states, self._attention(batch, states), count)
            number += count
        if full < all_layers:
            states = self.layer(full, states, batch, last=True)
        return self.finish(states)

    def gather(self, parts: Sequence[Part], rows: int, width: int) -> States:
        first, _, _ = parts[0]
        gathered = np.zeros((rows, width, first.shape[2]), first.dtype)
        for states, sources, targets in parts:
            gathered[targets, : states.shape[1]] = states[sources, :width]
        return gathered

    def guess(
        self, states: Float[np.ndarray, "masks hidden"], top: int
    ) -> tuple[Int[np.ndarray, "masks top"], Float[np.ndarray, "masks top"]]:
        best = []
        for at in range(0, len(states), _FILLED_AT_ONCE):
            inputs = {"states": states[at : at + _FILLED_AT_ONCE], **self._table}
            # Some models have embedding rows beyond the vocabulary, which stand for no token.
            logits = self._graphs.run("masked", inputs)["logits"]
            best.append(_best(logits[:, : self.tokenizer.vocab_size], top))
        ids, probabilities = zip(*best, strict=True)
        return np.concatenate(ids), np.concatenate(probabilities)

    def pool(
        self, states: States, mask: Bool[np.ndarray, "rows seq"] | None, pooling: Pooling
    ) -> Float[np.ndarray, "rows hidden"]:
        if pooling == "cls":
            return states[:, 0]
        if mask is None:
            mean: np.ndarray = states.mean(1)
            return mean
        # every real token, [CLS] and [SEP] included, as sentence-transformers does
        weights = mask.astype(np.float32)[:, None]
        pooled: np.ndarray = (weights @ states)[:, 0] / weights.sum(2)
        return pooled

    def start(self, batch: HostBatch) -> States:
        token_ids = batch.arrays["token_ids"]
        segment_ids = batch.arrays.get("segment_ids")
        inputs = {
            "token_ids": token_ids,
            "segment_ids": np.zeros_like(token_ids) if segment_ids is None else segment_ids,
            **self._table,
        }
        return self._graphs.run("embedding", inputs)["out"]

    def layer(self, number: int, states: States, batch: HostBatch, *, last: bool = False) -> States:
        attention = self._attention(batch, states)
        if last and "needed" in batch.arrays:
            attention = {**attention, "needed": batch.arrays["needed"]}
        return self._apply(number, states, attention, 1)

    def _apply(self, number: int, states: States, attention: Arrays, count: int) -> States:
        """The application with this number, and those behind it that are the same, as `count`
        says."""
        for graph, has_attention, adapters in self._plan[number]:
            inputs = {"states": states, **adapters}
            if has_attention:
                inputs |= attention
            if graph in self._looped:
                inputs["count"] = _count(count)
            states = self._graphs.run(graph, inputs)["out"]
        return states

    def finish(self, states: States) -> States:
        if self.config.encoder.norm == "post":
            return states
        return self._graphs.run("final", {"states": states})["out"]

    def head(self, batch: HostBatch, states: States) -> Outputs:
        kind = batch.head
        if kind in POOLED_HEADS:
            return Outputs(logits=self._graphs.run("pooled", {"states": states[:, 0]})[kind])
        if kind == "tag":
            words = states.reshape(-1, states.shape[2])[batch.arrays["words"]]
            return Outputs(logits=self._graphs.run("tag", {"states": words})["logits"])
        if kind == "span":
            return Outputs(logits=self._graphs.run("span", {"states": states})["logits"])
        inputs = {"states": states, "allowed": batch.arrays["allowed"]}
        start = self._graphs.run("joint_start", inputs)

        def ends(starts: Int[np.ndarray, "rows beam"]) -> Float[np.ndarray, "rows beam seq"]:
            return self._graphs.run("joint_end", inputs | {"starts": starts})["logits"]

        return Outputs(logits=start["logits"], unanswerable=start["unanswerable"], ends=ends)

    def exit(self, depth: int, batch: HostBatch, states: States) -> Logits:
        assert batch.head is not None
        has_own = depth < len(self._plan) and f"exit-{depth}" in self._graph_names
        graph = f"exit-{depth}" if has_own else "pooled"
        return self._graphs.run(graph, {"states": states[:, 0]})[batch.head]

    def _attention(self, batch: HostBatch, states: States) -> Arrays:
        """What attention reads beside states: the same arrays for all layers of a batch, which a
        runtime need not be handed again."""
        last = self._last
        if getattr(last, "batch", None) is not batch:
            rows, seq = states.shape[:2]
            mask = batch.arrays.get("mask")
            last.batch = batch
            last.inputs = {
                "bias": _nothing(rows, seq)
                if mask is None
                else np.where(mask, np.float32(0), LOWEST)[:, None, None],
                "needed": _all_positions(rows, seq),
                **(self._rotation if self._graphs.rotates else wide_rotation(self._rotation, seq)),
            }
        inputs: Arrays = last.inputs
        return inputs

    def encode(
        self, rows: Sequence[Row], needed: Columns | None, *, fills: bool = False
    ) -> Iterator[tuple[Int[np.ndarray, " _batch"], States, HostBatch]]:
        batches = row_batches(
            rows, needed, pad_id=self.tokenizer.pad_id, batch_tokens=self.batch_tokens
        )
        try:
            for numbers, batch in batches:
                yield numbers, self.states(batch), batch
        finally:
            self.release()


class _Step(NamedTuple):
    """A graph of one application of a layer."""

    graph: str
    has_attention: bool
    adapters: Arrays


def _step(graph: LayerGraph, depth: int, tensors: Arrays) -> _Step:
    parts = [f"{name}_{part}" for name in graph.adapted for part in ("down", "up")]
    adapters = {part: tensors[part][depth] for part in parts if part in tensors}
    return _Step(graph.name, graph.attention is not None, adapters)


@cache
def _count(number: int) -> Int[np.ndarray, ""]:
    return np.array(number)


@lru_cache(maxsize=8)
def _nothing(rows: int, seq: int) -> Float[np.ndarray, "batch 1 1 seq"]:
    return np.zeros((rows, 1, 1, seq), np.float32)


@lru_cache(maxsize=8)
def _all_positions(rows: int, seq: int) -> Int[np.ndarray, "rows seq"]:
    return np.arange(rows * seq).reshape(rows, seq)


def _best(
    logits: Float[np.ndarray, "masks vocab"], top: int
) -> tuple[Int[np.ndarray, "masks top"], Float[np.ndarray, "masks top"]]:
    """The tokens with the highest probabilities, the highest first."""
    few = np.argpartition(-logits, top - 1, axis=1)[:, :top]
    probabilities = np.take_along_axis(softmax(logits), few, 1)
    order = np.argsort(-probabilities, axis=1, kind="stable")
    return np.take_along_axis(few, order, 1), np.take_along_axis(probabilities, order, 1)


def failed(exported: Exported, graph: str, error: Exception) -> str:
    """A sentence about a graph that a runtime refused."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # OpenVINO says first where in its own source
    reason = next((line for line in lines if not line.startswith("Exception from ")), lines[0])
    return (
        f"the graph {graph} in {exported.folder} does not run: {reason}; it is damaged or of "
        "another model, export the model again"
    )
