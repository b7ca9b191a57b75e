"""Attention over packed rows on a GPU: our kernel for short rows against torch's flash attention, in the same run. Prints JSON.

    python bench/short_attention.py [--rounds 7] [--variants]

Each case is a batch of rows: how many, their tokens, their queries (0: all), heads, size of a head; bfloat16, query, key and
value slices of one tensor as after a fused product. Errors are relative, of the output and the three gradients, against
float64. Times are milliseconds of one call on the GPU alone: calls are recorded in a CUDA graph, contenders take turns, and
the figure is the median. `--variants` times other numbers of warps, stages and programs too, by which the defaults were chosen.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from litebert.model import short_attention as short

CALLS = 20
"""In one graph: the time of its start does not count."""
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
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


class Case:
    """Inputs of one case, and the contenders on them."""

    def __init__(self, rows: int, tokens: int, needed: int, heads: int, size: int) -> None:
        torch.manual_seed(0)
        lengths = torch.randint(max(1, tokens * 3 // 4), tokens + 1, (rows,))
        lengths[0] = tokens
        self.lengths, self.counts = lengths.tolist(), [needed] * rows if needed else lengths.tolist()
        self.longest = needed or tokens, tokens
        self.bounds = self.bounds_of(self.counts), self.bounds_of(self.lengths)
        options: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
        wide = torch.randn(sum(self.lengths), 3, heads, size, **options)
        query = torch.randn(sum(self.counts), heads, size, **options) if needed else wide[:, 0]
        self.leaves = [part.detach().requires_grad_() for part in (query, wide[:, 1], wide[:, 2])]
        self.gradient = torch.randn(sum(self.counts), heads, size, **options)

    @staticmethod
    def bounds_of(sizes: list[int]) -> Tensor:
        return torch.tensor([0, *sizes]).cumsum(0).to("cuda", torch.int32)

    def flash(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        attended = varlen_attn(query, key, value, *self.bounds, *self.longest)
        assert isinstance(attended, Tensor)
        return attended

    def short(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return short.short_attention(query, key, value, *self.bounds, *self.longest)

    def exact(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Row by row, in the type of the inputs."""
        rows = zip(query.split(self.counts), key.split(self.lengths), value.split(self.lengths), strict=True)
        weights = ((torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5, v) for q, k, v in rows)
        return torch.cat([torch.einsum("hqk,khd->qhd", w.softmax(-1), v) for w, v in weights])

    def outcome(self, attend: Attend, dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
        leaves = [leaf.detach().to(dtype).requires_grad_() for leaf in self.leaves]
        out = attend(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, self.gradient.to(dtype))]

    def errors(self, attend: Attend, truth: list[Tensor]) -> list[float]:
        found = zip(self.outcome(attend), truth, strict=True)
        return [round(float((mine.double() - exact).norm() / exact.norm()), 6) for mine, exact in found]

    def record(self, attend: Attend, *, backward: bool) -> torch.cuda.CUDAGraph:
        def call() -> None:
            out = attend(*self.leaves)
            if backward:
                torch.autograd.grad(out, self.leaves, self.gradient)

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):  # compiles the kernels
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                call()
        return graph


def milliseconds(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / CALLS


@contextmanager
def variant(*, num_warps: int = 0, stages: int = 0, programs: int = 0) -> Iterator[None]:
    blocks, room = short._blocks, short._room
    short._blocks = lambda *args: blocks(*args) | ({"num_warps": num_warps} if num_warps else {})
    short._room = lambda *args: (programs or room(*args)[0], stages or room(*args)[1])
    try:
        yield
    finally:
        short._blocks, short._room = blocks, room


def run(case: Case, rounds: int, variants: dict[str, dict[str, int]]) -> dict[str, Any]:
    truth = case.outcome(case.exact, torch.float64)
    found: dict[str, Any] = {}
    graphs: dict[tuple[str, bool], torch.cuda.CUDAGraph] = {}
    for name, (attend, settings) in {
        "flash": (case.flash, {}),
        "short": (case.short, {}),
        **{name: (case.short, settings) for name, settings in variants.items()},
    }.items():
        try:
            with variant(**settings):
                found[name] = {"errors": case.errors(attend, truth)}
                for backward in (False, True):
                    graphs[name, backward] = case.record(attend, backward=backward)
        except triton.runtime.errors.OutOfResources as error:
            found[name] = {"failed": str(error)}
    times: dict[tuple[str, bool], list[float]] = {key: [] for key in graphs}
    for _ in range(rounds + 1):
        for key, graph in graphs.items():
            times[key].append(milliseconds(graph))
    for (name, backward), taken in times.items():
        found[name]["forward and backward" if backward else "forward"] = round(statistics.median(taken[1:]), 4)
    for key in ("forward", "forward and backward"):
        found[f"flash / short, {key}"] = round(found["flash"][key] / found["short"][key], 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--variants", action="store_true")
    args = parser.parse_args()
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}))
    for name, shape in CASES.items():
        print(json.dumps({"case": name, **run(Case(*shape), args.rounds, VARIANTS if args.variants else {})}), flush=True)


if __name__ == "__main__":
    main()
