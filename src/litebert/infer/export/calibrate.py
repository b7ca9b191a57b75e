"""Ranges of what linear layers read, for static int8: a checkpoint and texts in; a range for each
input, over all applications of its layer, out.

The range is the one with the least squared error: a few outliers would make the steps of all other
values wide, so that it is better to clip them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from litebert.infer.export.graph import Range
from litebert.infer.torch_engine import TorchEngine
from litebert.storage.checkpoint import Checkpoint

BINS = 4096
"""Of the histogram of an input's values."""
_CANDIDATES = 64
"""Ends of ranges that are tried at each side."""
_READERS = {
    "attentions": {"query": "states", "output": "attended"},
    "feed_forwards": {"inner": "states", "outer": "activated"},
}
"""Of each sublayer the linear layers whose inputs are quantized, and the names of those inputs."""


def measure_ranges(checkpoint: Checkpoint, texts: Sequence[str]) -> dict[str, Range]:
    """The ranges, by the names that export/network.py gives them."""
    widest: dict[str, Range] = {}
    counts: dict[str, Tensor] = {}

    def widen(name: str, values: Tensor) -> None:
        low, high = (float(each) for each in torch.aminmax(values))
        before = widest.get(name, (0.0, 0.0))
        widest[name] = min(low, before[0]), max(high, before[1])

    def count(name: str, values: Tensor) -> None:
        low, high = widest[name]
        histogram = torch.histc(values.float(), bins=BINS, min=low, max=high)
        counts[name] = counts.get(name, 0) + histogram.double()

    for look in (widen, count):
        with _watching(checkpoint, look):
            # a text at a time: padding has states too, and nobody reads them
            engine = TorchEngine(checkpoint, batch_tokens=1)
            engine.embed(texts, pooling="mean", normalize=False)
    return {name: best_range(counts[name].numpy(), *widest[name]) for name in counts}


def best_range(counts: Float[np.ndarray, " bins"], low: float, high: float) -> Range:
    """Of a histogram from `low` to `high`, the range whose 256 steps have the least squared error:
    that of rounding inside, and of clipping outside."""
    edges = np.linspace(low, high, len(counts) + 1)
    values = (edges[1:] + edges[:-1]) / 2
    shares = np.linspace(1 / _CANDIDATES, 1, _CANDIDATES)
    lows, highs = shares * min(low, 0.0), shares * max(high, 0.0)
    below = np.array([counts @ np.maximum(end - values, 0) ** 2 for end in lows])
    above = np.array([counts @ np.maximum(values - end, 0) ** 2 for end in highs])
    rounding = counts.sum() * ((highs - lows[:, None]) / 255) ** 2 / 12
    i, j = np.unravel_index((below[:, None] + above + rounding).argmin(), rounding.shape)
    return float(lows[i]), float(highs[j])


@contextmanager
def _watching(checkpoint: Checkpoint, look: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Call `look` with the name and the values of each input that will be quantized."""

    def hook(name: str) -> Callable[[Any, tuple[Tensor]], None]:
        return lambda module, inputs: look(name, inputs[0])

    encoder = checkpoint.model.encoder
    hooks = [
        getattr(module, linear).register_forward_pre_hook(hook(f"encoder.{kind}.{owner}.{name}"))
        for kind, readers in _READERS.items()
        for owner, module in enumerate(getattr(encoder, kind))
        for linear, name in readers.items()
    ]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()
