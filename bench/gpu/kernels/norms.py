"""Norms and GELU with sums of their own in the backward pass, on a GPU: each kernel, and a layer
with and without. Prints JSON.

    python -m bench.gpu.kernels.norms [--parts kernels layer variants] [--rounds 5] [--norm pre]

Measured as in bench/gpu/kernels/short_attention.py, in well under a minute; each line has the
seconds since the start. A kernel's line has its time beside the time that its bytes take at 4.3
TB/s ("counted"); errors are relative, of each result against float64. Those of the backward pass
have the sum over the few hundred rows of sums that they leave in them ("add up"). `variants` times
other rows, stages and programs: the best of them should be the defaults (NORM and GELU in
kernels/norm.py).

The part `layer` times a layer of albert-base, compiled as in training, forward and backward:
without the kernels ("plain"), and with them ("fused"). Errors are of the output and all gradients
together, against float64; `kept_mb` is what the layer holds between forward and backward.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
import triton
from torch import Tensor, nn

from bench.common.gpu_timing import in_turns, record
from bench.gpu.kernels.short_attention import Rows, flat
from litebert.config import PRESETS
from litebert.kernels import norm as fused_norm
from litebert.kernels.gate import Gate
from litebert.model import layers
from litebert.model.layers import Attention, FeedForward, apply_layer
from litebert.model.positions import Packing

DEVICE, DTYPE = "cuda", torch.bfloat16
TOKENS, SIZE, INNER = 29_500, 768, 3072
BYTES_A_MS = 4.3e9
"""Nine tenths of what an H200 is said to move."""
ROWS = {128: (264, 128, 0), 512: (66, 512, 0)}
"""About as many tokens."""
WAYS = {"plain": False, "fused": True}
"""Whether with the kernels."""
VARIANTS = {
    "norm": [
        (1, 1, 7),
        (1, 3, 7),
        (2, 1, 4),
        (2, 2, 4),
        (2, 3, 4),
        (2, 4, 4),
        (2, 3, 3),
        (4, 3, 2),
    ],
    "gelu": [
        (1, 1, 8),
        (1, 3, 8),
        (2, 1, 6),
        (2, 2, 6),
        (2, 3, 4),
        (2, 3, 6),
        (2, 4, 4),
        (4, 3, 3),
    ],
}
"""Rows, stages, programs for each of 132 multiprocessors."""
Call = Callable[[], Any]


class Kernels:
    """Inputs, and what is called on them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.states, self.gradient, self.skip = (self.draw(TOKENS, SIZE) for _ in range(3))
        self.inner, self.inner_gradient = self.draw(TOKENS, INNER), self.draw(TOKENS, INNER)
        self.weight, self.bias = 1 + self.draw(SIZE) / 8, self.draw(SIZE)
        _, *self.statistics = torch.native_layer_norm(
            self.states, (SIZE,), self.weight, self.bias, 1e-12
        )

    @staticmethod
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, device=DEVICE, dtype=DTYPE)

    def norm(self) -> tuple[Tensor, ...]:
        out: tuple[Tensor, ...] = fused_norm._norm_backward(
            self.gradient, self.skip, self.states, *self.statistics, self.weight
        )
        return out

    def gelu(self, *, is_tanh: bool = True) -> tuple[Tensor, ...]:
        out: tuple[Tensor, ...] = fused_norm.gelu_backward(self.inner_gradient, self.inner, is_tanh)
        return out

    def calls(self) -> dict[str, tuple[Call, int]]:
        """By name, with the bytes that each moves."""
        sums, totals = self.draw(fused_norm.NORM["programs"], 3 * SIZE).float(), self.draw(3, SIZE)
        gelu_sums = 4 * fused_norm.GELU["programs"] * fused_norm.COLUMNS
        state, inner = 2 * TOKENS * SIZE, 2 * TOKENS * INNER
        return {
            "norm, back": (self.norm, 4 * state + 2 * sums.nbytes),
            "norm, add up": (lambda: fused_norm.add_up(sums, totals), sums.nbytes),
            "gelu": (lambda: fused_norm.gelu(self.inner, True), 2 * inner),
            "gelu by erf": (lambda: fused_norm.gelu(self.inner, False), 2 * inner),
            "torch's gelu": (lambda: F.gelu(self.inner, approximate="tanh"), 2 * inner),
            "gelu, back": (self.gelu, 4 * inner + 2 * gelu_sums),
            "gelu by erf, back": (partial(self.gelu, is_tanh=False), 4 * inner + 2 * gelu_sums),
        }

    def errors(self) -> dict[str, list[float]]:
        """Of the states' gradient, of norm weight, norm bias and the bias beside; of GELU, its
        gradient and the bias before."""
        leaf, weight, bias = (
            part.double().requires_grad_() for part in (self.states, self.weight, self.bias)
        )
        out = F.layer_norm(leaf, (SIZE,), weight, bias, 1e-12)
        of_states, *of_parameters = torch.autograd.grad(
            out, [leaf, weight, bias], self.gradient.double()
        )
        gradient, totals = self.norm()
        exact = [of_states + self.skip.double(), *of_parameters, self.skip.double().sum(0)]
        errors = {"norm": [error(*pair) for pair in zip([gradient, *totals], exact, strict=True)]}
        for name in ("tanh", "none"):
            leaf = self.inner.double().requires_grad_()
            out = F.gelu(leaf, approximate=name)
            (slope,) = torch.autograd.grad(out, leaf, self.inner_gradient.double())
            gradient, anew, total = self.gelu(is_tanh=name == "tanh")
            pairs = (anew, out.detach()), (gradient, slope), (total, slope.sum(0))
            errors[f"gelu, {name}"] = [error(*pair) for pair in pairs]
        return errors


class Layer(Rows):
    """A whole layer on states of its own."""

    def __init__(self, rows: tuple[int, int, int], norm: Any) -> None:
        super().__init__(*rows)
        config = replace(PRESETS["albert-base-v2"], norm=norm)  # without dropout
        self.parts = nn.ModuleList([Attention(config), FeedForward(config)]).to(DEVICE, DTYPE)
        self.states, self.gradient = (
            torch.randn(1, sum(self.lengths), SIZE, device=DEVICE, dtype=DTYPE) for _ in range(2)
        )
        self.packing = Packing(self.bounds[1], rows[1])
        self.saved_bytes = 0

    def call(self, layer: Any, dtype: torch.dtype = DTYPE) -> list[Tensor]:
        states = self.states.detach().to(dtype).requires_grad_()
        torch._dynamo.mark_dynamic(states, 1)
        before = torch.cuda.memory_allocated()
        out = layer(*self.parts, states, self.packing)
        self.saved_bytes = torch.cuda.memory_allocated() - before - out.nbytes
        return [
            out.detach(),
            *torch.autograd.grad(out, [states, *self.parts.parameters()], self.gradient.to(dtype)),
        ]

    def truth(self) -> Tensor:
        def attend(query: Tensor, key: Tensor, value: Tensor, *_: object, **__: object) -> Tensor:
            return self.exact(query[0], key[0], value[0])[None]

        with patch.object(layers, "scaled_dot_product", attend):
            self.parts.double()
            exact_result = flat(self.call(apply_layer, torch.float64))
            self.parts.to(DTYPE)
            return exact_result

    def run(self, rounds: int) -> dict[str, Any]:
        truth, figures, graphs = self.truth(), dict[str, Any](), dict[str, torch.cuda.CUDAGraph]()
        for name, is_on in WAYS.items():
            torch._dynamo.reset()
            gate = Gate(attention=True, linear=True, norm=is_on, feed_forward=is_on, varlen=True)
            compiled = torch.compile(gate.layer())
            self.call(compiled)
            figures[name] = {
                "error": error(flat(self.call(compiled)), truth),
                "kept_mb": round(self.saved_bytes / 1e6),
            }
            graphs[name] = record(partial(self.call, compiled))
        for name, taken in in_turns(graphs, rounds).items():
            figures[name]["forward and backward"] = taken
        return figures


def error(mine: Tensor, exact: Tensor) -> float:
    return round(float((mine.double() - exact).norm() / exact.norm()), 6)


def variants(kernels: Kernels, rounds: int) -> dict[str, Any]:
    graphs: dict[Any, torch.cuda.CUDAGraph] = {}
    for kind, sizes, call in (
        ("norm", fused_norm.NORM, kernels.norm),
        ("gelu", fused_norm.GELU, kernels.gelu),
    ):
        for rows, stages, programs in VARIANTS[kind]:
            with patch.dict(sizes, {"rows": rows, "stages": stages, "programs": 132 * programs}):
                graphs[f"{kind}, {rows} rows, {stages} stages, {programs} programs"] = record(call)
    return in_turns(graphs, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", choices=["kernels", "layer", "variants"], default=["kernels", "layer"]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--norm", choices=["pre", "post"], default="pre")
    args = parser.parse_args()
    start = time.perf_counter()

    def say(**line: Any) -> None:
        print(json.dumps({**line, "seconds": round(time.perf_counter() - start, 1)}), flush=True)

    say(gpu=torch.cuda.get_device_name(), torch=torch.__version__, triton=triton.__version__)
    if args.parts != ["layer"]:
        kernels = Kernels()
    if "kernels" in args.parts:
        say(case="errors", **kernels.errors())
        calls = kernels.calls()
        for name, taken in in_turns(
            {name: record(call) for name, (call, _) in calls.items()}, args.rounds
        ).items():
            say(case=name, ms=taken, counted=round(calls[name][1] / BYTES_A_MS, 4))
    if "variants" in args.parts:
        say(case="variants", **variants(kernels, args.rounds))
    for tokens, rows in ROWS.items() if "layer" in args.parts else ():
        say(
            case=f"layer, {tokens} tokens",
            norm=args.norm,
            **Layer(rows, args.norm).run(args.rounds),
        )


if __name__ == "__main__":
    main()
