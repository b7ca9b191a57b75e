"""What the model computes, written as graphs: the embedding, a layer or its two halves, the final
norm and the heads (ALBERT §3.1; model/ in plain PyTorch says the same).

In: the config, and weights as numpy arrays under the names of the checkpoint. States are (batch,
seq, hidden), and `bias` (batch, 1, 1, seq) is added to attention scores: 0 at real tokens, very low
at padding. A layer computes queries, and all behind them, at the flat positions `needed`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from litebert.config import EncoderConfig, ModelConfig
from litebert.errors import ConfigError
from litebert.infer.export.graph import Graph
from litebert.infer.plan import adapter_shapes
from litebert.storage.checkpoint import Checkpoint

Weights = Mapping[str, np.ndarray]

LOWEST = float(np.finfo(np.float32).min)


def exported_config(config: ModelConfig) -> ModelConfig:
    """What is exported: all but what only pretraining reads. Refuses what graphs do not compute."""
    encoder = config.encoder
    for is_set, what in (
        (encoder.reversible, "reversible layers, with their two streams of states,"),
        (bool(encoder.embedding_bands), "embeddings in bands"),
    ):
        if is_set:
            raise ConfigError(f"{what} are computed by torch alone; predict with --engine torch")
    heads = tuple(head for head in config.heads if head.kind != "detect")
    return replace(config, heads=heads, generator=None)


def weights_of(checkpoint: Checkpoint) -> Weights:
    """As float32 arrays, under the names of the checkpoint."""
    return {
        name: tensor.detach().float().cpu().numpy()
        for name, tensor in checkpoint.model.state_dict().items()
    }


class Network:
    """Writes parts of one model into graphs."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config, self.encoder, self.weights = config, config.encoder, weights

    def matrix(self, name: str) -> np.ndarray:
        """As (inputs, outputs)."""
        return np.ascontiguousarray(self.weights[f"{name}.weight"].T)

    def vector(self, name: str) -> np.ndarray:
        return self.weights[f"{name}.bias"]

    def linear(self, graph: Graph, value: str, name: str, range_name: str | None = None) -> str:
        return graph.linear(
            value, name, self.matrix(name), self.vector(name), range_name=range_name
        )

    def norm(self, graph: Graph, value: str, name: str) -> str:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return graph.norm(value, name, weight, bias, self.encoder.norm_epsilon)

    def activation(self, graph: Graph, value: str) -> str:
        kind = self.encoder.activation
        if kind == "relu":
            return graph.op("Relu", value)
        return graph.op("Gelu", value, approximate="tanh" if kind == "gelu_tanh" else "none")

    # ---- the encoder

    def embed(self, graph: Graph, tokens: str, segment_ids: str) -> str:
        """`tokens`: rows of the token table, (batch, seq, E)."""
        name = "encoder.embedding"
        segments = graph.constant(f"{name}.segment", self.weights[f"{name}.segment.weight"])
        value = graph.op("Add", tokens, graph.op("Gather", segments, segment_ids, axis=0))
        if self.encoder.positions != "rotary":
            table = graph.constant(f"{name}.position", self.weights[f"{name}.position.weight"])
            length = graph.op("Shape", segment_ids, start=1, end=2)
            zeros = graph.constant("zeros", np.zeros(1, np.int64))
            value = graph.op("Add", value, graph.op("Slice", table, zeros, length))
        value = self.norm(graph, value, f"{name}.norm")
        if self.encoder.has_mapping:
            value = self.linear(graph, value, f"{name}.mapping")
        return value

    def attention(self, graph: Graph, owner: int, states: str, inputs: Mapping[str, str]) -> str:
        """Self-attention with its residual and norm; the result is (batch, chosen, hidden).

        `inputs` are the bias, perhaps the needed positions, the rotation's tables and adapters.
        """
        config, name = self.encoder, f"encoder.attentions.{owner}"
        size, heads, needed = config.hidden_size, config.num_attention_heads, inputs.get("needed")
        x = self.norm(graph, states, f"{name}.norm") if config.norm == "pre" else states
        # the scale of the scores is in the query's weights
        scale = np.float32(config.head_size**-0.5)
        query = graph.linear(
            x,
            f"{name}.query",
            self.matrix(f"{name}.query") * scale,
            self.vector(f"{name}.query") * scale,
            range_name=f"{name}.states",
            rows=needed,
        )
        both = [f"{name}.key", f"{name}.value"]
        key_value = graph.linear(
            x,
            f"{name}.key_value",
            np.concatenate([self.matrix(each) for each in both], 1),
            np.concatenate([self.vector(each) for each in both]),
            range_name=f"{name}.states",
        )
        key, value = graph.ops("Split", key_value, count=2, axis=2, num_outputs=2)
        if "query_down" in inputs:
            update = self._update(graph, graph.take(x, needed, size), inputs, "query")
            scaled = graph.op("Mul", update, graph.constant("score scale", scale))
            query = graph.op("Add", query, scaled)
            key = graph.op("Add", key, self._update(graph, x, inputs, "key"))
            value = graph.op("Add", value, self._update(graph, x, inputs, "value"))
        is_rotary = self.encoder.positions == "rotary"
        if is_rotary and graph.for_onnx_runtime:
            query = self._rotate_by_operator(graph, query, inputs, needed)
            key = self._rotate_by_operator(graph, key, inputs)
        query, key, value = (
            graph.op("Transpose", graph.reshape(each, 0, 0, heads, -1), perm=(0, 2, 1, 3))
            for each in (query, key, value)
        )
        if is_rotary and not graph.for_onnx_runtime:
            query = self._rotate(graph, query, inputs, needed)
            key = self._rotate(graph, key, inputs)
        key = graph.op("Transpose", key, perm=(0, 1, 3, 2))
        scores = graph.op("Add", graph.op("MatMul", query, key), inputs["bias"])
        attended = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
        attended = graph.reshape(graph.op("Transpose", attended, perm=(0, 2, 1, 3)), 0, 0, size)
        after = self.linear(graph, attended, f"{name}.output", f"{name}.attended")
        after = self._adapted(graph, after, attended, inputs, "output")
        summed = graph.op("Add", after, graph.take(states, needed, size))
        return summed if config.norm == "pre" else self.norm(graph, summed, f"{name}.norm")

    def feed_forward(self, graph: Graph, owner: int, states: str, inputs: Mapping[str, str]) -> str:
        name = f"encoder.feed_forwards.{owner}"
        is_pre = self.encoder.norm == "pre"
        x = self.norm(graph, states, f"{name}.norm") if is_pre else states
        inner = self.linear(graph, x, f"{name}.inner", f"{name}.states")
        inner = self.activation(graph, self._adapted(graph, inner, x, inputs, "inner"))
        outer = self.linear(graph, inner, f"{name}.outer", f"{name}.activated")
        outer = self._adapted(graph, outer, inner, inputs, "outer")
        summed = graph.op("Add", outer, states)
        return summed if is_pre else self.norm(graph, summed, f"{name}.norm")

    def final(self, graph: Graph, states: str) -> str:
        """Of pre-norm, whose last states are a sum."""
        return self.norm(graph, states, "encoder.norm") if self.encoder.norm == "pre" else states

    # ---- heads

    def pooled(self, graph: Graph, first: str, kinds: Sequence[str]) -> dict[str, str]:
        """The logits of heads that read [CLS]; `first` is its state, (batch, hidden)."""
        state = graph.op("Tanh", self.linear(graph, first, "encoder.pooler"))
        return {kind: self.linear(graph, state, f"heads.{kind}.output") for kind in kinds}

    def exit(self, graph: Graph, first: str, depth: int) -> dict[str, str]:
        """The logits of the heads that read [CLS] after `depth` layers, with weights of their
        own."""
        logits: dict[str, str] = {}
        for head in self.config.heads:
            if head.exits == "each":
                name = f"exits.{head.kind}.{depth - 1}"
                state = graph.op("Tanh", self.linear(graph, first, f"{name}.pooler"))
                logits[head.kind] = self.linear(graph, state, f"{name}.output.output")
        return logits

    def masked_query(self, graph: Graph, states: str) -> str:
        """What is compared with every token's embedding, (masked, E)."""
        name = "heads.masked"
        value = self.activation(graph, self.linear(graph, states, f"{name}.dense"))
        return self.norm(graph, value, f"{name}.norm")

    def joint_start(self, graph: Graph, states: str, allowed: str) -> tuple[str, str]:
        """Logits of the start, and of there being no answer."""
        name = "heads.joint_span"
        start = self._hide(graph, self._flat(graph, states, f"{name}.start"), allowed)
        shares = graph.op("Unsqueeze", graph.op("Softmax", start, axis=-1), _axes(graph, -1))
        expected = graph.op(
            "ReduceSum", graph.op("Mul", shares, states), _axes(graph, 1), keepdims=0
        )
        first = graph.op("Gather", states, graph.constant("zero", np.int64(0)), axis=1)
        both = graph.op("Concat", expected, first, axis=-1)
        inner = graph.op("Tanh", self.linear(graph, both, f"{name}.answer_dense"))
        answer = graph.linear(inner, f"{name}.answer", self.matrix(f"{name}.answer"))
        return start, graph.reshape(answer, -1)

    def joint_end(self, graph: Graph, states: str, allowed: str, starts: str) -> str:
        """Logits of the end for each of several starts, (batch, beam, seq)."""
        name, size = "heads.joint_span", self.encoder.hidden_size
        weight = self.matrix(f"{name}.end_dense")
        indices = graph.op("Unsqueeze", starts, _axes(graph, -1))
        at_start = graph.op("GatherND", states, indices, batch_dims=1)
        of_state = graph.linear(states, f"{name}.end_dense.state", weight[:size])
        of_start = graph.linear(
            at_start, f"{name}.end_dense.start", weight[size:], self.vector(f"{name}.end_dense")
        )
        inner = graph.op(
            "Add",
            graph.op("Unsqueeze", of_state, _axes(graph, 1)),
            graph.op("Unsqueeze", of_start, _axes(graph, 2)),
        )
        inner = self.norm(graph, graph.op("Tanh", inner), f"{name}.end_norm")
        logits = self._flat(graph, inner, f"{name}.end")
        return self._hide(graph, logits, graph.op("Unsqueeze", allowed, _axes(graph, 1)))

    # ---- parts of these

    def _update(self, graph: Graph, x: str, inputs: Mapping[str, str], name: str) -> str:
        down = graph.op("MatMul", x, inputs[f"{name}_down"])
        return graph.op("MatMul", down, inputs[f"{name}_up"])

    def _adapted(
        self, graph: Graph, mapped: str, x: str, inputs: Mapping[str, str], name: str
    ) -> str:
        if f"{name}_down" not in inputs:
            return mapped
        return graph.op("Add", mapped, self._update(graph, x, inputs, name))

    def _rotate(
        self, graph: Graph, heads: str, inputs: Mapping[str, str], needed: str | None = None
    ) -> str:
        """Queries or keys, (batch, heads, seq, size), rotated by their positions: all, or the
        needed ones. cos and sin are (1, 1, seq, size). Written as OpenVINO recognizes a rotation,
        for which it has one operation."""
        size = self.encoder.head_size
        cos, sin = inputs["cos"], inputs["sin"]
        if needed is not None:
            column = self._column(graph, inputs, needed)
            cos, sin = (
                graph.op(
                    "Unsqueeze",
                    graph.op("Gather", graph.reshape(table, -1, size), column, axis=0),
                    _axes(graph, 1),
                )
                for table in (cos, sin)
            )
        first, second = (
            graph.op(
                "Slice",
                heads,
                _axes(graph, start),
                _axes(graph, start + size // 2),
                _axes(graph, 3),
            )
            for start in (0, size // 2)
        )
        minus = graph.op("Mul", second, graph.constant("minus one", np.float32(-1)))
        return graph.op(
            "Add",
            graph.op("Mul", heads, cos),
            graph.op("Mul", graph.op("Concat", minus, first, axis=-1), sin),
        )

    def _rotate_by_operator(
        self, graph: Graph, value: str, inputs: Mapping[str, str], needed: str | None = None
    ) -> str:
        """The same for (batch, seq, hidden). cos and sin are (positions, size / 2)."""
        if needed is None:
            positions = graph.constant("from the first", np.zeros(1, np.int64))
        else:
            positions = self._column(graph, inputs, needed)
        return graph.own("RotaryEmbedding", value, positions, inputs["cos"], inputs["sin"])

    def _column(self, graph: Graph, inputs: Mapping[str, str], needed: str) -> str:
        """The positions in their rows of flat ones."""
        return graph.op("Mod", needed, graph.op("Shape", inputs["bias"], start=3, end=4))

    def _flat(self, graph: Graph, value: str, name: str) -> str:
        """One number for each token, without an axis of its own."""
        return graph.op("Squeeze", self.linear(graph, value, name), _axes(graph, -1))

    def _hide(self, graph: Graph, logits: str, allowed: str) -> str:
        return graph.op("Where", allowed, logits, graph.constant("lowest", np.float32(LOWEST)))


def adapter_inputs(graph: Graph, config: EncoderConfig, adapted: tuple[str, ...]) -> dict[str, str]:
    """Inputs for the updates of these matrices; none where the model has no adapters."""
    return {
        name: graph.input(name, np.float32, shape[1:])
        for name, shape in adapter_shapes(config, adapted).items()
    }


def adapter_tensors(config: EncoderConfig, weights: Weights) -> dict[str, np.ndarray]:
    """The updates of all applications, stacked, as (inputs, outputs)."""

    def stacked(name: str, count: int) -> np.ndarray:
        path = name.replace("_", ".")
        each = [weights[f"encoder.adapters.{number}.{path}.weight"].T for number in range(count)]
        return np.stack(each)

    return {name: stacked(name, shape[0]) for name, shape in adapter_shapes(config).items()}


def _axes(graph: Graph, *axes: int) -> str:
    return graph.constant(f"axes {' '.join(map(str, axes))}", np.array(axes, np.int64))
