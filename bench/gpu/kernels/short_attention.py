"""Attention over packed rows on a GPU: our kernel for short rows against torch's flash attention,
in the same run. Prints JSON.

    python -m bench.gpu.kernels.short_attention [--parts attention layer] [--rounds 7] \\
        [--variants] [--norm pre]

Each case is a batch of rows: how many, their tokens, their queries (0: all), heads, size of a
head; bfloat16, query, key and value slices of one tensor as after a fused matmul. Errors are
relative, of the output and the three gradients, against float64. `rotary` is ours with
rotary positions, against the same truth of rotated heads. Times are milliseconds of one call on the
GPU alone: calls are recorded in a CUDA graph, contenders take turns, and the figure is the median.
`--variants` times other numbers of warps, stages and programs too, by which the defaults were
chosen.

The part `layer` times the whole attention part of albert-base, compiled as in training, forward and
backward: with query, key and value by one matmul, in one tensor with one gradient, and by three.
Errors are of the output and all gradients together.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from bench.common.gpu_timing import in_turns, record
from litebert.config import PRESETS, EncoderConfig
from litebert.kernels.attention import short
from litebert.kernels.attention.rotary import Rotary
from litebert.kernels.gate import Gate
from litebert.kernels.layer import _attention
from litebert.model import layers
from litebert.model.layers import Attention
from litebert.model.positions import Needed, Packing, Rotation

DEVICE, DTYPE = "cuda", torch.bfloat16
CASES = {
    "128 tokens": (256, 128, 0, 12, 64),
    "128 tokens, 21 needed": (256, 128, 21, 12, 64),
    "64 tokens": (512, 64, 0, 12, 64),
    "128 tokens, heads of 128": (256, 128, 0, 16, 128),
}
VARIANTS: dict[str, dict[str, int]] = {
    "4 warps": {"num_warps": 4},
    "8 warps": {"num_warps": 8},
    "1 stage": {"stages": 1},
    "1 stage, a program a unit": {"stages": 1, "programs": 1 << 30},
    "3 stages": {"stages": 3},
    "5 stages, a program a unit": {"stages": 5, "programs": 1 << 30},
}
LAYERS = {"layer, 128 tokens": (544, 128, 0), "layer, 128 tokens, 21 needed": (544, 128, 21)}
"""About 61,000 tokens: a microbatch of pretraining."""
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Rows:
    """How the tokens of one case lie."""

    least = 0.75
    """No row has a smaller part of the longest one's tokens."""

    def __init__(self, rows: int, tokens: int, needed: int) -> None:
        torch.manual_seed(0)
        lengths = torch.randint(max(1, int(tokens * self.least)), tokens + 1, (rows,))
        lengths[0] = tokens
        self.lengths, self.counts = (
            lengths.tolist(),
            [needed] * rows if needed else lengths.tolist(),
        )
        self.longest = needed or tokens, tokens
        self.bounds = self.bounds_of(self.counts), self.bounds_of(self.lengths)

    @staticmethod
    def bounds_of(sizes: list[int]) -> Tensor:
        return torch.tensor([0, *sizes]).cumsum(0).to(DEVICE, torch.int32)

    def exact(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Row by row, in the type of the inputs."""
        rows = zip(
            query.split(self.counts),
            key.split(self.lengths),
            value.split(self.lengths),
            strict=True,
        )
        weights = ((torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5, v) for q, k, v in rows)
        return torch.cat([torch.einsum("hqk,khd->qhd", w.softmax(-1), v) for w, v in weights])


class Case(Rows):
    """Inputs of attention alone, and the contenders on them."""

    def __init__(self, rows: int, tokens: int, needed: int, heads: int, size: int) -> None:
        super().__init__(rows, tokens, needed)
        options: dict[str, Any] = {"device": DEVICE, "dtype": DTYPE}
        wide = torch.randn(sum(self.lengths), 3, heads, size, **options)
        query = torch.randn(sum(self.counts), heads, size, **options) if needed else wide[:, 0]
        self.leaves = [part.detach().requires_grad_() for part in (query, wide[:, 1], wide[:, 2])]
        self.gradient = torch.randn(sum(self.counts), heads, size, **options)
        self.config = EncoderConfig(hidden_size=size, num_attention_heads=1, positions="rotary")
        self.positions = [
            torch.cat([torch.arange(count, device=DEVICE) for count in counts])
            for counts in (self.counts, self.lengths)
        ]
        of_queries, of_keys = self.positions
        tables = self.rotation(of_keys, torch.float32)
        self.tables = Rotary(tables.cos, tables.sin, of_keys, of_queries if needed else None)

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        states = torch.zeros(1, len(positions), 1, device=DEVICE, dtype=dtype)
        return Rotation.of(self.config, states, positions[None])

    def exact_rotary(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query, key = (
            self.rotation(positions, heads.dtype).apply(heads[None])[0]
            for positions, heads in zip(self.positions, (query, key), strict=True)
        )
        return self.exact(query, key, value)

    def flash(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        attended = varlen_attn(query, key, value, *self.bounds, *self.longest)
        assert isinstance(attended, Tensor)
        return attended

    def short(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return short.short_attention(
            [part[:, None] for part in (query, key, value)], *self.bounds, *self.longest
        )

    def rotary(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return short.short_attention(
            [part[:, None] for part in (query, key, value)],
            *self.bounds,
            *self.longest,
            rotary=self.tables,
        )

    def outcome(self, attend: Attend, dtype: torch.dtype = DTYPE) -> list[Tensor]:
        leaves = [leaf.detach().to(dtype).requires_grad_() for leaf in self.leaves]
        out = attend(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, self.gradient.to(dtype))]

    def errors(self, attend: Attend, truth: list[Tensor]) -> list[float]:
        pairs = zip(self.outcome(attend), truth, strict=True)
        return [
            round(float((mine.double() - exact).norm() / exact.norm()), 6) for mine, exact in pairs
        ]

    def record(self, attend: Attend, *, backward: bool) -> torch.cuda.CUDAGraph:
        def call() -> None:
            out = attend(*self.leaves)
            if backward:
                torch.autograd.grad(out, self.leaves, self.gradient)

        return record(call)


Ways = dict[str, Gate]
WAYS: Ways = {
    "one matmul": Gate(attention=True, linear=True, varlen=True),
    "three matmuls": Gate(attention=True, varlen=True),
}


class Layer(Rows):
    """The attention part of a layer on states of its own."""

    def __init__(self, rows: int, tokens: int, needed: int, norm: Any) -> None:
        super().__init__(rows, tokens, needed)
        config = replace(PRESETS["albert-base-v2"], norm=norm)  # without dropout
        self.part = Attention(config).to(DEVICE, DTYPE)
        self.states = torch.randn(
            1, sum(self.lengths), config.hidden_size, device=DEVICE, dtype=DTYPE
        )
        self.gradient = torch.randn(
            1, sum(self.counts), config.hidden_size, device=DEVICE, dtype=DTYPE
        )
        self.packing, self.needed = Packing(self.bounds[1], tokens), None
        if needed:
            places = self.bounds[1][:-1, None] + torch.arange(needed, device=DEVICE)
            self.needed = Needed(places.flatten()[None], self.bounds[0], needed)

    def call(self, part: Any, dtype: torch.dtype = DTYPE) -> list[Tensor]:
        states = self.states.detach().to(dtype).requires_grad_()
        torch._dynamo.mark_dynamic(states, 1)
        out = part(states, self.packing, self.needed)
        gradients = torch.autograd.grad(
            out, [states, *self.part.parameters()], self.gradient.to(dtype)
        )
        return [out.detach(), *gradients]

    def truth(self) -> list[Tensor]:
        def attend(query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object) -> Tensor:
            return self.exact(query[0], key[0], value[0])[None]

        with patch.object(layers, "scaled_dot_product", attend):
            try:
                return self.call(self.part.double(), torch.float64)
            finally:
                self.part.to(DTYPE)

    def run(self, rounds: int, ways: Ways = WAYS) -> dict[str, Any]:
        truth, figures, graphs = (
            flat(self.truth()),
            dict[str, Any](),
            dict[str, torch.cuda.CUDAGraph](),
        )
        for name, gate in ways.items():
            torch._dynamo.reset()
            compiled = torch.compile(lambda *args, gate=gate: _attention(gate, self.part, *args))
            error = float((flat(self.call(compiled)) - truth).norm() / truth.norm())
            figures[name] = {"error": round(error, 6)}
            graphs[name] = record(partial(self.call, compiled))
        for name, taken in in_turns(graphs, rounds).items():
            figures[name]["forward and backward"] = taken
        return figures


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.double().flatten() for tensor in tensors])


@contextmanager
def variant(*, num_warps: int = 0, stages: int = 0, programs: int = 0) -> Iterator[None]:
    blocks, room = short._blocks, short._room
    changed = {"num_warps": num_warps} if num_warps else {}
    short._blocks = lambda *args, **least: blocks(*args, **least) | changed
    short._room = lambda *args: (programs or room(*args)[0], stages or room(*args)[1])
    try:
        yield
    finally:
        short._blocks, short._room = blocks, room


def run(case: Case, rounds: int, variants: dict[str, dict[str, int]]) -> dict[str, Any]:
    truths = {
        exact: case.outcome(exact, torch.float64) for exact in (case.exact, case.exact_rotary)
    }
    figures: dict[str, Any] = {}
    graphs: dict[tuple[str, bool], torch.cuda.CUDAGraph] = {}
    for name, (attend, settings) in {
        "flash": (case.flash, {}),
        "short": (case.short, {}),
        "rotary": (case.rotary, {}),
        **{name: (case.short, settings) for name, settings in variants.items()},
    }.items():
        try:
            with variant(**settings):
                truth = truths[case.exact_rotary if name == "rotary" else case.exact]
                figures[name] = {"errors": case.errors(attend, truth)}
                for backward in (False, True):
                    graphs[name, backward] = case.record(attend, backward=backward)
        except triton.runtime.errors.OutOfResources as error:
            figures[name] = {"failed": str(error)}
    for (name, backward), taken in in_turns(graphs, rounds).items():
        figures[name]["forward and backward" if backward else "forward"] = taken
    for key in ("forward", "forward and backward"):
        figures[f"flash / short, {key}"] = round(figures["flash"][key] / figures["short"][key], 2)
        figures[f"short / rotary, {key}"] = round(figures["short"][key] / figures["rotary"][key], 3)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", choices=["attention", "layer"], default=["attention", "layer"]
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--norm", choices=["pre", "post"], default="pre")
    args = parser.parse_args()
    print(
        json.dumps(
            {
                "gpu": torch.cuda.get_device_name(),
                "torch": torch.__version__,
                "triton": triton.__version__,
            }
        )
    )
    for name, shape in CASES.items() if "attention" in args.parts else ():
        print(
            json.dumps(
                {"case": name, **run(Case(*shape), args.rounds, VARIANTS if args.variants else {})}
            ),
            flush=True,
        )
    for name, rows in LAYERS.items() if "layer" in args.parts else ():
        print(
            json.dumps(
                {"case": name, "norm": args.norm, **Layer(*rows, args.norm).run(args.rounds)}
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
