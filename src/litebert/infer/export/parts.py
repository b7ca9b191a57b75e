"""The graphs of one model, one for each part: config and weights in; bytes by name out, and the
tensors that engines pass in: the token table, which the embedding and the masked-token head share,
and the adapters of every application."""

from collections.abc import Collection

import numpy as np

from litebert.config import POOLED_HEADS, ModelConfig
from litebert.infer.export.graph import Graph, Quantization, integers
from litebert.infer.export.network import (
    Network,
    Weights,
    adapter_inputs,
    adapter_tensors,
)
from litebert.infer.exported import SCALES, TABLE, Runtime
from litebert.infer.plan import LayerGraph, head_graphs, layer_graphs, looped_graphs

FLOAT = 1
"""ONNX's number for float32."""


def write_parts(
    config: ModelConfig, weights: Weights, quantization: Quantization, runtime: Runtime
) -> dict[str, bytes]:
    """Every graph of the model, by its name (infer/plan.py). Those that are applied several times
    in a row have an input `count`, and one call is as many applications."""
    network, looped = Network(config, weights), looped_graphs(config)
    return PartWriter(network, quantization, looped, for_onnx_runtime=runtime == "onnx").all()


def write_tensors(
    config: ModelConfig, weights: Weights, quantization: Quantization
) -> dict[str, np.ndarray]:
    """What graphs read as inputs, by the input's name."""
    table = weights["encoder.embedding.token.weight"]
    tensors = {TABLE: table}
    if quantization.precision != "float32":
        numbers, scales = integers(table, axis=0)
        tensors = {TABLE: numbers, SCALES: scales[:, None]}
    return tensors | adapter_tensors(config.encoder, weights)


class PartWriter:
    """A method for each graph, under its name."""

    def __init__(
        self,
        network: Network,
        quantization: Quantization,
        looped: Collection[str] = (),
        *,
        for_onnx_runtime: bool = True,
    ) -> None:
        self.network, self.quantization, self.looped = network, quantization, looped
        self.for_onnx_runtime = for_onnx_runtime
        self.encoder = network.encoder

    def all(self) -> dict[str, bytes]:
        layers = {graph.name: graph for graphs in layer_graphs(self.encoder) for graph in graphs}
        parts = {"embedding": self.embedding()}
        parts |= {name: self.layer(graph) for name, graph in layers.items()}
        return parts | {name: self.head(name) for name in head_graphs(self.network.config)}

    def embedding(self) -> bytes:
        graph = self.graph()
        token_ids = graph.input("token_ids", np.int64, ("batch", "seq"))
        segment_ids = graph.input("segment_ids", np.int64, ("batch", "seq"))
        tokens = self._tokens(graph, token_ids)
        return self.finish(graph, self.network.embed(graph, tokens, segment_ids), "embedding")

    def layer(self, layer: LayerGraph) -> bytes:
        graph, size = self.graph(), self.encoder.hidden_size
        value = graph.input("states", np.float32, ("batch", "seq", size))
        inputs = adapter_inputs(graph, self.encoder, layer.adapted)
        if layer.attention is not None:
            inputs["bias"] = graph.input("bias", np.float32, ("batch", 1, 1, "seq"))
            inputs["needed"] = graph.input("needed", np.int64, ("batch", "chosen"))
            if self.encoder.positions == "rotary":
                head_size = self.encoder.head_size
                shape: tuple[int | str, ...] = (1, 1, "seq", head_size)
                if self.for_onnx_runtime:
                    shape = ("positions", head_size // 2)
                inputs |= {name: graph.input(name, np.float32, shape) for name in ("cos", "sin")}
            value = self.network.attention(graph, layer.attention, value, inputs)
        if layer.feed_forward is not None:
            value = self.network.feed_forward(graph, layer.feed_forward, value, inputs)
        graph.output(value, "out", np.float32, ("batch", "chosen", size))
        if layer.name in self.looped:
            graph = graph.repeated("states", "out")
        return graph.to_bytes(layer.name)

    def head(self, name: str) -> bytes:
        """A graph behind a layer, by its name."""
        _, is_exit, depth = name.partition("exit-")
        data: bytes = self.exit(int(depth)) if is_exit else getattr(self, name)()
        return data

    def exit(self, depth: int) -> bytes:
        """The head of the states after that many layers, which leave early."""
        graph = self.graph()
        first = graph.input("states", np.float32, ("batch", self.encoder.hidden_size))
        for kind, logits in self.network.exit(graph, first, depth).items():
            graph.output(logits, kind, np.float32, ("batch", "outputs"))
        return graph.to_bytes(f"exit-{depth}")

    def final(self) -> bytes:
        graph = self.graph()
        return self.finish(graph, self.network.final(graph, self._states(graph)), "final")

    def pooled(self) -> bytes:
        graph = self.graph()
        first = graph.input("states", np.float32, ("batch", self.encoder.hidden_size))
        kinds = [head.kind for head in self.network.config.heads if head.kind in POOLED_HEADS]
        for kind, logits in self.network.pooled(graph, first, kinds).items():
            graph.output(logits, kind, np.float32, ("batch", "outputs"))
        return graph.to_bytes("pooled")

    def masked(self) -> bytes:
        graph = self.graph()
        states = graph.input("states", np.float32, ("masked", self.encoder.hidden_size))
        query = self.network.masked_query(graph, states)
        table = graph.op("Transpose", self._table(graph), perm=(1, 0))
        logits = graph.op("MatMul", query, table)
        bias = graph.constant("heads.masked.bias", self.network.weights["heads.masked.bias"])
        graph.output(graph.op("Add", logits, bias), "logits", np.float32, ("masked", "vocab"))
        return graph.to_bytes("masked")

    def tag(self) -> bytes:
        graph = self.graph()
        states = graph.input("states", np.float32, ("words", self.encoder.hidden_size))
        logits = self.network.linear(graph, states, "heads.tag.output")
        graph.output(logits, "logits", np.float32, ("words", "labels"))
        return graph.to_bytes("tag")

    def span(self) -> bytes:
        graph = self.graph()
        logits = self.network.linear(graph, self._states(graph), "heads.span.output")
        graph.output(logits, "logits", np.float32, ("batch", "seq", 2))
        return graph.to_bytes("span")

    def joint_start(self) -> bytes:
        graph = self.graph()
        states, allowed = self._states(graph), graph.input("allowed", np.bool_, ("batch", "seq"))
        start, unanswerable = self.network.joint_start(graph, states, allowed)
        graph.output(start, "logits", np.float32, ("batch", "seq"))
        graph.output(unanswerable, "unanswerable", np.float32, ("batch",))
        return graph.to_bytes("joint_start")

    def joint_end(self) -> bytes:
        graph = self.graph()
        states, allowed = self._states(graph), graph.input("allowed", np.bool_, ("batch", "seq"))
        starts = graph.input("starts", np.int64, ("batch", "beam"))
        logits = self.network.joint_end(graph, states, allowed, starts)
        graph.output(logits, "logits", np.float32, ("batch", "beam", "seq"))
        return graph.to_bytes("joint_end")

    def graph(self) -> Graph:
        return Graph(self.quantization, for_onnx_runtime=self.for_onnx_runtime)

    def _states(self, graph: Graph) -> str:
        return graph.input("states", np.float32, ("batch", "seq", self.encoder.hidden_size))

    def finish(self, graph: Graph, states: str, name: str) -> bytes:
        graph.output(states, "out", np.float32, ("batch", "seq", self.encoder.hidden_size))
        return graph.to_bytes(name)

    def _tokens(self, graph: Graph, token_ids: str) -> str:
        """Rows of the token table, in float32."""
        tables = self._inputs(graph)
        rows = [graph.op("Gather", table, token_ids, axis=0) for table in tables]
        return _dequantize(graph, rows)

    def _table(self, graph: Graph) -> str:
        return _dequantize(graph, self._inputs(graph))

    def _inputs(self, graph: Graph) -> list[str]:
        shape = (self.encoder.vocab_size, self.encoder.embedding_size)
        if self.quantization.precision == "float32":
            return [graph.input(TABLE, np.float32, shape)]
        return [
            graph.input(TABLE, np.int8, shape),
            graph.input(SCALES, np.float32, (shape[0], 1)),
        ]


def _dequantize(graph: Graph, rows: list[str]) -> str:
    if len(rows) == 1:
        return rows[0]
    return graph.op("Mul", graph.op("Cast", rows[0], to=FLOAT), rows[1])
