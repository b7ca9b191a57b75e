"""Clocks, memory and rows of bench/gpu/step.py. What is measured comes in as a call; a row comes
out, of a failure too."""

import argparse
import gc
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.gpu.table import table

ROUNDS = 3
BLOCK_SECONDS = 2.0
"""A block of steps takes no longer, unless three steps do."""
GIB = 2**30


class Meter:
    """Options and a place for rows."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = "cpu" if options.tiny else "cuda"
        self.out: Path | None = options.out
        self.rows: list[dict[str, Any]] = []
        self.later: list[dict[str, Any]] = []
        """Rows that a measurement leaves beside its own."""
        self.recompile_limit = torch._dynamo.config.recompile_limit
        self.ends = time.monotonic() + (options.seconds or math.inf)
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            (self.out / "rows.jsonl").write_text("")

    def note(self, **row: Any) -> None:
        """A row: printed and kept at once."""
        self.rows.append(row)
        print(json.dumps(row, ensure_ascii=False), flush=True)
        if self.out is not None:
            with (self.out / "rows.jsonl").open("a") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            (self.out / "table.md").write_text(table(self.rows))

    def attempt(
        self, measure: Callable[[], dict[str, Any]], needs: float = 0.0, **name: Any
    ) -> dict[str, Any]:
        """Measure, whatever happens, where there is time for it (`needs` seconds); afterwards the
        device is as before."""
        began = time.monotonic()
        if began + needs > self.ends:
            self.note(
                **name,
                skipped=f"takes about {needs:.0f} s, and {max(self.ends - began, 0):.0f} are left",
            )
            return self.rows[-1]
        self.clean()
        try:
            figures = measure()
        except Exception as error:
            lines = str(error).splitlines() or [""]
            figures = {"failed": f"{type(error).__name__}: {lines[0]}"[:400]}
        self.clean()
        row = name | figures | {"seconds": round(time.monotonic() - began, 1)}
        self.note(**row)
        while self.later:
            self.note(**name | self.later.pop(0))
        return row

    def clean(self) -> None:
        gc.collect()
        torch._dynamo.reset()
        torch._dynamo.config.recompile_limit = (
            self.recompile_limit
        )  # which our runs raise: a peer is compiled as by default
        if (
            self.device == "cuda" and torch.cuda.is_available()
        ):  # without a GPU each part says so in its row
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def memory(self) -> dict[str, float]:
        if self.device != "cuda":
            return {"peak_gib": 0.0, "reserved_gib": 0.0}
        peaks = {
            "peak_gib": torch.cuda.max_memory_allocated(),
            "reserved_gib": torch.cuda.max_memory_reserved(),
        }
        return {name: round(number / GIB, 2) for name, number in peaks.items()}

    def first(self, step: Callable[[], Any]) -> float:
        began = time.monotonic()
        step()
        self.synchronize()
        return round(time.monotonic() - began, 2)

    def timed(self, step: Callable[[], tuple[int, int]], rounds: int = ROUNDS) -> dict[str, float]:
        """Seconds of a step, and its tokens, by the median block."""
        once = self.first(step)
        count = max(3, min(self.options.steps, int(BLOCK_SECONDS / max(once, 1e-4))))
        blocks, self.clock = [], 0.0
        for _ in range(rounds):
            began = time.monotonic()
            tokens = [step() for _ in range(count)]
            self.synchronize()
            seconds = time.monotonic() - began
            self.clock += seconds
            real, positions = (sum(each) for each in zip(*tokens, strict=True))
            blocks.append(
                {"step": seconds / count, "real": real / seconds, "positions": positions / seconds}
            )
        return {name: statistics.median(block[name] for block in blocks) for name in blocks[0]}

    def ceiling(self) -> float:
        """TFLOP/s of one large bfloat16 matmul."""
        size, count = (64, 2) if self.options.tiny else (8192, 10)
        left, right = (
            torch.randn(size, size, device=self.device, dtype=torch.bfloat16) for _ in range(2)
        )
        for _ in range(3):
            left @ right
        self.synchronize()
        began = time.monotonic()
        for _ in range(count):
            left @ right
        self.synchronize()
        return round(2 * size**3 * count / (time.monotonic() - began) / 1e12, 1)


def search(peak: Callable[[int], float | None], start: int, limit: float) -> int:
    """Most rows whose peak is within the limit, or a little fewer; `peak` is None where they do not
    fit.

    Rows are halved until they fit. Where they do at once, two peaks make a straight line, which
    saves the doublings; where it promised too much, the middle between what fits and what does not
    is tried, some times.
    """
    rows = start
    first = peak(rows)
    while first is None and rows > 1:
        rows //= 2
        first = peak(rows)
    if first is None:
        return 0
    if rows < start:
        return rows
    second = peak(2 * rows)
    if second is None:
        return rows
    a_row = (second - first) / rows
    guess = int(rows + 0.97 * (limit - first) / a_row) // 8 * 8 if a_row > 0 else 4 * rows
    fits, too_many = 2 * rows, None
    for _ in range(4):
        if guess <= fits:
            break
        if peak(guess) is None:
            too_many = guess
        elif too_many is None:
            return guess
        else:
            fits = guess
        if too_many - fits <= max(8, fits // 8):
            break
        guess = (fits + too_many) // 2 // 8 * 8
    return fits
