"""What each speed-up of pretraining is worth on one GPU: the real step as it is, then without one
of them at a time.

    python -m bench.gpu.ablation --data SHARDS --out DIR  # albert-base at 512 and 128 tokens
    python -m bench.gpu.ablation --data SHARDS --shapes base-512 --without nothing graphs
    python -m bench.gpu.ablation --tiny  # the same code on a CPU

Steps, clocks and flags are those of bench/gpu/step.py; `× step` of a row is its step's time by
that of the step as it is. Some lean on others. Graphs need static arrays, which padded rows are
not, and what is not compiled is not recorded. Kernels are switched off as `--kernels` does it. A
row has what is lost in the end.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from bench.gpu import step
from bench.gpu.contenders import Case, Ours
from litebert.kernels.gate import FAMILIES, VARIABLE, Gate
from litebert.objective import masked

SHAPES = ("base-512", "base-128")
NEEDS = 35.0
"""Seconds that a row is expected to take."""


def at_all_tokens(model: Any, batch: Any, *, depth: int | None = None) -> Any:
    """The same states as `needed_states`, with the last layer at every token."""
    states = replace(batch, needed=None).states(model.encoder, depth=depth)
    return states.flatten(0, 1)[batch.needed.places.flatten()]


def without_graphs(run: Ours) -> None:
    """Of passes and of the update."""
    run.loop.passes = run.loop.update = None


def without_prefetch(run: Ours) -> None:
    if run.loop.passes is not None:  # without graphs, as on a CPU, nothing is prefetched
        run.loop.passes.prefetch = lambda step: None  # type: ignore[method-assign]


def same(run: Ours) -> None:
    """Nothing to change once it is built."""


def switched_off(family: str) -> contextlib.AbstractContextManager[Any]:
    return patch.dict(os.environ, {VARIABLE: f"{family}=off"})


WITHOUT: dict[
    str, tuple[Callable[[], contextlib.AbstractContextManager[Any]], Callable[[Ours], None]]
] = {
    # name: what is changed while it is built and runs, what once it is built
    "nothing": (contextlib.nullcontext, same),
    "needed": (lambda: patch.object(masked, "needed_states", at_all_tokens), same),
    "packing": (lambda: patch.object(Gate, "packs", lambda *_, **__: False), same),
    "graphs": (contextlib.nullcontext, without_graphs),
    "prefetch": (contextlib.nullcontext, without_prefetch),
    "compile": (contextlib.nullcontext, same),
    **{
        family: (lambda family=family: switched_off(family), same)  # type: ignore[misc]
        for family in FAMILIES
        if family != "fp8"
    },
    "kernels": (lambda: patch.dict(os.environ, {VARIABLE: "off"}), same),
}
"""The last layer at the needed positions alone; packed rows; CUDA graphs; the next microbatch
prefetched; compiled layers; each kernel family (kernels/gate.py), and all of them."""


class Ablation(step.Bench):
    def run(self) -> None:
        for shape in self.options.shapes or (("tiny",) if self.options.tiny else SHAPES):
            self.as_it_is: float | None = None
            for name in self.options.without:
                self.attempt(
                    lambda name=name, shape=shape: self.step(name, self.cases[shape]),  # type: ignore[misc]
                    needs=0 if self.options.tiny else NEEDS,
                    part="ablation",
                    shape=shape,
                    without=name,
                )

    def step(self, name: str, case: Case) -> dict[str, Any]:
        changed, change = WITHOUT[name]
        rows, microbatch = case.ours[0]
        if name == "compile":
            case = replace(case, compile="off")
        with changed(), self.running(case, rows, microbatch) as run:
            change(run)
            first = self.first(run)
            self.warm(run)
            run()
            row = (
                self.speed(case, run, first)
                | self.memory()
                | {"rows": rows, "microbatch": microbatch, "messages": run.messages}
            )
        if name == "nothing":
            self.as_it_is = row["step_ms"]
        return row | ({"× step": round(row["step_ms"] / self.as_it_is, 3)} if self.as_it_is else {})


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--without", nargs="+", choices=WITHOUT, default=list(WITHOUT))
    own, others = parser.parse_known_args(words)
    return argparse.Namespace(**vars(step.arguments(others)) | vars(own))


def main() -> int:
    words = sys.argv[1:]
    return step.conduct(arguments(words), Ablation, words)


if __name__ == "__main__":
    sys.exit(main())
