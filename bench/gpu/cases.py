"""What bench/gpu/step.py measures: shapes, modes and limits by name, and the seconds that each part
is expected to take."""

from dataclasses import replace
from typing import Any

from bench.gpu.contenders import Case
from litebert.testing import SHAPE

CASES = {
    "base-512": Case(
        preset="albert-base-v2",
        length=512,
        ours=((256, 256), (256, 64), (64, 64)),
        theirs=(64, 128),
    ),
    "base-128": Case(
        preset="albert-base-v2", length=128, ours=((1024, 1024), (512, 512)), theirs=(512, 256)
    ),
    "large-512": Case(
        preset="albert-large-v2", length=512, ours=((256, 128), (64, 64)), theirs=(64, 32)
    ),
    "xxlarge-512": Case(
        preset="albert-xxlarge-v2", length=512, ours=((128, 64), (128, 32)), theirs=(16, 32)
    ),
}
CASES["xxlarge-512-fp8"] = replace(CASES["xxlarge-512"], dtype="fp8", theirs=())
TINY = {
    name: Case(
        preset="tiny",
        length=24,
        ours=((8, 8), (8, 4)),
        theirs=(8,),
        overrides=SHAPE,
        compile="off",
        dtype=dtype,
    )
    for name, dtype in {"tiny": "bfloat16", "tiny-fp8": "fp8"}.items()
}
TINY["tiny-fp8"] = replace(TINY["tiny-fp8"], theirs=())
MODES: dict[str, dict[str, Any]] = {
    "all kept": {},
    "recompute": {"recompute": True},
    "checkpoint_every 1": {"checkpoint_every": 1},
}
"""Activations that are saved for the backward pass, from most to least."""
MEMORY = {
    "base-512": (64, "recompute", 9.0),
    "xxlarge-512": (32, "checkpoint_every 1", 24.0),
    "tiny": (8, "checkpoint_every 1", 1.0),
}
"""Rows, mode, and GiB that must be enough."""
PARTS = ("speed", "memory", "loader", "largest", "start")
NEEDS = {
    "ours": {"base": 45, "large": 55, "xxlarge": 95, "tiny": 1},
    "theirs": {"base": 46, "large": 70, "xxlarge": 55, "tiny": 1},
    "memory": {"base": 20, "large": 30, "xxlarge": 35, "tiny": 1},
    "largest": {"base": 18, "large": 22, "xxlarge": 25, "tiny": 1},
    "start": {"base": 30, "large": 30, "xxlarge": 35, "tiny": 10},
    "loader": {"base": 6, "large": 6, "xxlarge": 6, "tiny": 1},
}
"""Seconds that a row is expected to take on an H200, from measured rows where there are some."""


def needs(part: str, shape: str) -> float:
    """Seconds that a row of this part and shape is expected to take."""
    return NEEDS[part][shape.split("-")[0]]
