"""Which graphs an exported model has, and which of them each application of a layer runs: a config
in, names out. No torch.

A layer is one graph where its attention and its feed-forward belong together; where one of them has
several partners (share = attention, say) each is a graph of its own, so that no weight is stored
twice.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from litebert.config import POOLED_HEADS, EncoderConfig, ModelConfig

_ADAPTED: dict[str, tuple[str, ...]] = {
    "attention": ("query", "key", "value", "output"),
    "ffn": ("inner", "outer"),
}
"""Matrices that adapters update, by sublayer."""


@dataclass(frozen=True, kw_only=True)
class LayerGraph:
    """A graph that an application of a layer runs."""

    name: str
    attention: int | None
    """The owner of its parameters; None where the graph has no attention."""
    feed_forward: int | None

    @property
    def adapted(self) -> tuple[str, ...]:
        """Matrices of this graph that adapters update."""
        attention = () if self.attention is None else _ADAPTED["attention"]
        return attention + (() if self.feed_forward is None else _ADAPTED["ffn"])


def layer_graphs(config: EncoderConfig) -> list[tuple[LayerGraph, ...]]:
    """For each application of a layer its graphs, in order."""
    plan = config.plan()
    partners: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for attention, ffn in plan:
        partners["attention", attention].add(ffn)
        partners["ffn", ffn].add(attention)
    applications: list[tuple[LayerGraph, ...]] = []
    for attention, ffn in plan:
        if len(partners["attention", attention]) == len(partners["ffn", ffn]) == 1:
            graph = LayerGraph(name=f"layer-{attention}", attention=attention, feed_forward=ffn)
            applications.append((graph,))
        else:
            first = LayerGraph(
                name=f"attention-{attention}", attention=attention, feed_forward=None
            )
            second = LayerGraph(name=f"ffn-{ffn}", attention=None, feed_forward=ffn)
            applications.append((first, second))
    return applications


def repeats(config: ModelConfig) -> list[int]:
    """For each application, how many from there on one call computes: the same graph again and
    again, which reads nothing that differs between them. A model with exits is left after any
    layer, and a loop of one is slower than none."""
    plan = layer_graphs(config.encoder)
    counts = [1] * len(plan)
    if config.encoder.adapter_rank or any(head.exits != "none" for head in config.heads):
        return counts
    for number in reversed(range(len(plan) - 1)):
        if len(plan[number]) == 1 and plan[number] == plan[number + 1]:
            counts[number] = counts[number + 1] + 1
    return counts


def looped_graphs(config: ModelConfig) -> set[str]:
    """Graphs that one call may apply several times."""
    plan = layer_graphs(config.encoder)
    return {plan[at][0].name for at, count in enumerate(repeats(config)) if count > 1}


def adapter_shapes(
    config: EncoderConfig, adapted: tuple[str, ...] = _ADAPTED["attention"] + _ADAPTED["ffn"]
) -> dict[str, tuple[int, int, int]]:
    """Of the updates of these matrices, (applications, inputs, outputs), by name; none where the
    model has no adapters."""
    size, ffn_size, rank = config.hidden_size, config.ffn_size, config.adapter_rank
    sides = {"inner": (size, ffn_size), "outer": (ffn_size, size)}
    shapes: dict[str, tuple[int, int, int]] = {}
    for name in adapted if rank else ():
        inputs, outputs = sides.get(name, (size, size))
        shapes[f"{name}_down"] = (len(config.plan()), inputs, rank)
        shapes[f"{name}_up"] = (len(config.plan()), rank, outputs)
    return shapes


def rotation_tables(config: EncoderConfig) -> dict[str, np.ndarray]:
    """Cosines and sines by position and pair of numbers (model/positions.py), for rotary
    positions."""
    if config.positions != "rotary":
        return {}
    pairs = np.arange(0, config.head_size, 2) / config.head_size
    angles = np.arange(config.max_positions)[:, None] * config.rotary_base**-pairs
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def wide_rotation(tables: Mapping[str, np.ndarray], seq: int) -> dict[str, np.ndarray]:
    """Of these tables what a graph of standard operators reads: the first `seq` positions, and each
    pair's number at both of its places, (1, 1, seq, size)."""
    return {name: np.tile(table[:seq], 2)[None, None] for name, table in tables.items()}


def head_graphs(config: ModelConfig) -> tuple[str, ...]:
    """Graphs behind the last layer."""
    kinds = [head.kind for head in config.heads]
    names = ["final"] if config.encoder.norm == "pre" else []
    names += ["pooled"] if any(kind in POOLED_HEADS for kind in kinds) else []
    if any(head.exits == "each" for head in config.heads):
        names += [f"exit-{depth}" for depth in range(1, len(config.encoder.plan()))]
    names += [kind for kind in kinds if kind not in (*POOLED_HEADS, "joint_span")]
    names += ["joint_start", "joint_end"] if "joint_span" in kinds else []
    return tuple(names)


def graph_names(config: ModelConfig) -> tuple[str, ...]:
    """All graphs of a model, each once."""
    layers = [graph.name for graphs in layer_graphs(config.encoder) for graph in graphs]
    return ("embedding", *dict.fromkeys(layers), *head_graphs(config))
