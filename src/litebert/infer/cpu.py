"""What this processor computes fast: instructions in, the kind of int8 weights that are exact and
fast, and whether bfloat16 is, out. No torch."""

import platform
import re
from functools import cache
from pathlib import Path
from typing import Literal

Processor = Literal["vnni", "avx2", "arm64"]
"""vnni: products of bytes are added in 32 bits; avx2: in 16 bits, where full weights saturate;
arm64: like vnni."""


@cache
def cpu_features() -> frozenset[str]:
    """Instruction sets as Linux names them; empty where the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(line[1].split()) if line else frozenset()


def processor() -> Processor:
    """The kind of this machine; avx2 is what any x86 can do."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "arm64"
    has_vnni = cpu_features() & {"avx512_vnni", "avx_vnni"}
    return "vnni" if has_vnni else "avx2"


def has_bfloat16() -> bool:
    """Whether training in bfloat16 is faster here than in float32, several times for wide models;
    without these instructions it is slower."""
    return bool(cpu_features() & {"avx512_bf16", "amx_bf16", "bf16"})


def weight_limit() -> int:
    """Largest int8 weight whose products never saturate here."""
    return 64 if processor() == "avx2" else 127
