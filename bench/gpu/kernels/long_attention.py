"""Attention over packed rows of up to 512 tokens on a GPU: our kernels, torch's flash attention and
cuDNN's. Prints JSON.

    python -m bench.gpu.kernels.long_attention [--parts attention variants layer] [--rounds 5]

Measured as in bench/gpu/kernels/short_attention.py, in about a minute. The part `attention` has
flash attention and ours as they are; where all rows are full also cuDNN's, which knows nothing of
packed rows: what the GPU can do. `variants` times forward, and backward alone, with other tiles,
one kernel changed at a time, and the best of each together ("best"); `layer` then takes those. Each
line has the seconds since the start.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.common.gpu_timing import in_turns, record
from bench.gpu.kernels.short_attention import Case, Layer, Ways
from litebert.kernels.attention import long
from litebert.kernels.attention.long import Tile, Tiles
from litebert.kernels.gate import Gate

CASES = {
    "512 tokens": (64, 512, 0, 12, 64),
    "512 tokens, 77 needed": (64, 512, 77, 12, 64),
    "200 tokens": (150, 200, 0, 12, 64),
    "512 tokens, heads of 128": (32, 512, 0, 16, 128),
}
FULL = (64, 512, 0, 12, 64)
LAYER = (64, 512, 0)
WAYS: Ways = {
    "flash": Gate(linear=True, varlen=True),
    "long, three matmuls": Gate(attention=True, varlen=True),
    "long, one matmul": Gate(attention=True, linear=True, varlen=True),
}
VARIANTS = {
    "forward": [
        Tile(128, 64, 8, 2),
        Tile(128, 64, 4, 3),
        Tile(128, 128, 8, 3),
        Tile(64, 128, 4, 2),
    ],
    "of_queries": [
        Tile(128, 64, 8, 2),
        Tile(64, 64, 4, 3),
        Tile(64, 128, 4, 2),
        Tile(128, 128, 8, 2),
    ],
    "of_keys": [
        Tile(64, 64, 4, 3),
        Tile(64, 64, 4, 3, 168),
        Tile(32, 128, 8, 3, 128),
        Tile(32, 64, 4, 3, 128),
    ],
}
Graphs = dict[tuple[str, str], torch.cuda.CUDAGraph]


class Long(Case):
    """Ours beside flash attention."""

    def long(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return long.long_attention(
            [part[:, None] for part in (query, key, value)], *self.bounds, *self.longest
        )

    def rotary(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return long.long_attention(
            [part[:, None] for part in (query, key, value)],
            *self.bounds,
            *self.longest,
            rotary=self.tables,
        )

    def forward(self) -> list[Tensor]:
        return list(
            long._forward(
                [leaf.detach()[:, None] for leaf in self.leaves],
                *self.bounds,
                *self.longest,
                None,
                0.0,
            )
        )

    def backward(self, *saved: Tensor) -> list[Tensor]:
        parts = [leaf.detach()[:, None] for leaf in self.leaves]
        gradients = long._backward(
            parts, *saved, self.gradient, *self.bounds, *self.longest, None, 0.0
        )
        return [part[:, 0] for part in gradients]


class Full(Long):
    """Every row has as many tokens, so that they can be a batch like any other."""

    least = 1.0

    def cudnn(self, *parts: Tensor) -> Tensor:
        dense = [part.unflatten(0, (len(self.lengths), -1)).transpose(1, 2) for part in parts]
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(*dense).transpose(1, 2).flatten(0, 1)


def attempt(figures: dict[str, Any], name: str, build: Callable[..., None], *args: Any) -> None:
    """What does not work is noted and left out."""
    figures[name] = {}
    try:
        build(name, *args)
    except Exception as error:
        figures[name]["failed"] = f"{type(error).__name__}: {error}"[:300]


def compare(case: Long, rounds: int) -> dict[str, Any]:
    figures, graphs = dict[str, Any](), Graphs()

    def build(name: str) -> None:
        attend = getattr(case, name)
        exact = case.exact_rotary if name == "rotary" else case.exact
        truth = case.outcome(exact, torch.float64)
        figures[name]["errors"] = case.errors(attend, truth)
        graphs[name, "forward"] = case.record(attend, backward=False)
        graphs[name, "forward and backward"] = case.record(attend, backward=True)

    for name in ("flash", "long", "rotary", *(["cudnn"] if isinstance(case, Full) else [])):
        attempt(figures, name, build)
    for (name, way), taken in in_turns(graphs, rounds).items():
        figures[name][way] = taken
    return figures


def vary(case: Long, rounds: int) -> dict[str, Any]:
    """Milliseconds and the largest error with each tile, the default first. Leaves the best ones in
    their place."""
    size = case.gradient.shape[-1]
    figures, graphs, truth = dict[str, Any](), Graphs(), case.outcome(case.exact, torch.float64)
    read = list[list[Tensor]]()  # by the graphs, which do not hold it

    def build(name: str, kernel: str, tiles: Tiles) -> None:
        with patch.dict(long.TILES, {size: tiles}):
            saved = case.forward()
            read.append(saved)
            is_forward = kernel == "forward"
            mine, exact = (
                (saved[:1], truth[:1]) if is_forward else (case.backward(*saved), truth[1:])
            )
            errors = [
                float((a.double() - b).norm() / b.norm()) for a, b in zip(mine, exact, strict=True)
            ]
            figures[name]["error"] = round(max(errors), 6)
            graphs[name, kernel] = record(
                case.forward if is_forward else partial(case.backward, *saved)
            )

    tried = dict[str, tuple[str, Tile]]()
    for kernel, others in VARIANTS.items():
        for tile in (getattr(long.TILES[size], kernel), *others):
            name = (
                f"{kernel} {tile.queries}x{tile.keys}, {tile.warps} warps, {tile.stages} stages, "
                f"{tile.registers} registers"
            )
            tried[name] = kernel, tile
            attempt(figures, name, build, kernel, long.TILES[size]._replace(**{kernel: tile}))
    with patch.object(long, "DESCRIPTORS", False):
        for kernel in ("forward", "both backward"):
            attempt(figures, f"{kernel}, by addresses", build, kernel, long.TILES[size])
    times = {name: taken for (name, _), taken in in_turns(graphs, rounds).items()}
    for name, taken in times.items():
        figures[name]["milliseconds"] = taken
    best = {
        kernel: tile
        for name, (kernel, tile) in sorted(tried.items(), key=lambda item: -times.get(item[0], 1e9))
    }
    long.TILES[size] = Tiles(**best)
    return {
        **figures,
        "best": {kernel: list(tile) for kernel, tile in best.items()},
        "with the best": compare(case, rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=["attention", "variants", "layer"],
        default=["attention", "variants", "layer"],
    )
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    began = time.monotonic()

    def say(**what: Any) -> None:
        print(json.dumps({**what, "seconds": round(time.monotonic() - began, 1)}), flush=True)

    say(gpu=torch.cuda.get_device_name(), torch=torch.__version__, triton=triton.__version__)
    if "attention" in args.parts:
        for name, shape in CASES.items():
            say(case=name, **compare(Long(*shape), args.rounds))
        say(case="512 tokens, all rows full", **compare(Full(*FULL), args.rounds))
    if "variants" in args.parts:
        say(case="variants, 512 tokens", **vary(Long(*CASES["512 tokens"]), args.rounds))
    if "layer" in args.parts:
        say(case="layer, 512 tokens", **Layer(*LAYER, "pre").run(args.rounds, WAYS))


if __name__ == "__main__":
    main()
