"""The matmuls of a layer on a GPU, by torch's algorithm and by ours (kernels/cublaslt.py), in
turns. Prints JSON, a line for each.

    python -m bench.gpu.kernels.linear [--sizes 768 1024 4096] [--tokens 65536] [--rounds 7]

Milliseconds of one matmul, recorded and replayed; errors are relative, against float32. The
chip's clock falls under such a load: compare within a row, not between rows.
"""

import argparse
import json
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from bench.common.gpu_timing import in_turns, record
from litebert.kernels import cublaslt as lt
from litebert.kernels import linear
from litebert.kernels.feed_forward import _matmul_gelu

MAPS = {"query, key, value": (1, 3), "output": (1, 1), "inner": (1, 4), "outer": (4, 1)}
"""Inputs and outputs, in widths of a state."""


def cases(size: int, tokens: int) -> Any:
    """Name, call, and what float32 gives."""
    torch.manual_seed(0)
    for name, (inputs, outputs) in MAPS.items():
        states, gradient = (
            torch.randn(tokens, size * width, device="cuda").bfloat16()
            for width in (inputs, outputs)
        )
        weight = (
            torch.randn(size * outputs, size * inputs, device="cuda") / (size * inputs) ** 0.5
        ).bfloat16()
        bias = torch.randn(size * outputs, device="cuda").bfloat16()
        mapped = F.linear(states.float(), weight.float(), bias.float())
        yield (
            f"{name}, forward",
            partial(linear.matmul, states, weight, bias, transpose_right=True),
            mapped,
        )
        if outputs == 1:
            residual = torch.randn(tokens, size, device="cuda").bfloat16()
            fused = partial(linear.matmul, states, weight, bias, residual, transpose_right=True)
            yield f"{name}, forward, and the residual", fused, mapped + residual.float()
        yield (
            f"{name}, states",
            partial(linear.matmul, gradient, weight),
            gradient.float() @ weight.float(),
        )
        of_weight = gradient.float().mT @ states.float()
        yield (
            f"{name}, weights",
            partial(linear.matmul, gradient, states, transpose_left=True),
            of_weight,
        )
        if name == "inner":
            yield (
                "inner and GELU",
                lambda *, tuned, args=(states, weight, bias, True): _matmul_gelu(*args, tuned)[1],
                F.gelu(mapped, approximate="tanh"),
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[768, 1024, 4096])
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(
        json.dumps(
            {
                "device": torch.cuda.get_device_name(),
                "torch": torch.__version__,
                "cublaslt": lt.version(),
            }
        ),
        flush=True,
    )
    for size in options.sizes:
        for name, call, exact in cases(size, options.tokens):
            graphs, errors = {}, {}
            for way, is_on in (("torch", False), ("ours", True)):
                timed = partial(call, tuned=is_on)
                graphs[way] = record(timed)
                errors[way] = round(float((timed().float() - exact).norm() / exact.norm()), 6)
            print(
                json.dumps(
                    {
                        "size": size,
                        "matmul": name,
                        "ms": in_turns(graphs, options.rounds),
                        "errors": errors,
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
