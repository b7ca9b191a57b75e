"""What this machine can do and what is missing: a list of findings, gathered without changing or
fetching anything."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.threads import choose_threads, num_cores

# module → (extra that brings it, what it is for)
OPTIONAL = {
    "pyarrow": ("parquet", "read .parquet files"),
    "zstandard": ("zstd", "read .zst files"),
    "ray": ("ray", "build data on a cluster"),
    "onnxruntime": ("onnx", "predict without torch"),
    "openvino": ("openvino", "predict without torch, fastest in int8"),
}
CORE = ("torch", "numpy", "safetensors", "sentencepiece", "tyro", "rich", "jaxtyping")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked at."""

    name: str
    """What was looked at."""
    good: bool
    """False where something that litebert can do is not possible here."""
    value: str
    """What was found."""
    advice: str = ""
    """What to do, where something is missing."""


def examine(folder: Path | str = ".") -> list[Finding]:
    """Look at Python, packages, processor, memory, disk at `folder`, and accelerators."""
    findings = [
        Finding(
            name="python", good=True, value=f"{platform.python_version()} on {platform.platform()}"
        )
    ]
    findings += [_package(name) for name in CORE]
    findings += [_extra(name, extra, purpose) for name, (extra, purpose) in OPTIONAL.items()]
    findings.append(Finding(name="processor", good=True, value=f"{num_cores()} cores"))
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        findings.append(Finding(name="memory", good=True, value=f"{memory / 2**30:.1f} GiB"))
    path = Path(os.path.realpath(folder))  # resolve() raises on a loop of links
    free = shutil.disk_usage(
        next(each for each in (path, *path.parents) if each.exists())
    ).free  # it may be yet to come
    low = free < 2**30
    advice = "make room: a snapshot of albert-base takes about 200 MB" if low else ""
    findings.append(
        Finding(name="disk", good=not low, value=f"{free / 2**30:.1f} GiB free", advice=advice)
    )
    return [*findings, _engine(), *_accelerators(), *_kernels()]


def _engine() -> Finding:
    """What computes an embedded model, and what the processor has for int8."""
    from litebert.infer.cpu import processor
    from litebert.infer.engines import choose_engine

    name, reason = choose_engine("auto")
    exact = {
        "vnni": "int8 with 8-bit weights (VNNI)",
        "avx2": "int8 with 7-bit weights (no VNNI)",
        "arm64": "int8 with 8-bit weights (arm64)",
    }
    whose = "" if name == "torch" else " for embedded models, torch for your own"
    return Finding(name="engine", good=True, value=f"{name}{whose}: {reason}; {exact[processor()]}")


def _package(name: str) -> Finding:
    try:
        return Finding(name=name, good=True, value=importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name=name, good=False, value="missing", advice="pip install litebert")


def _extra(name: str, extra: str, purpose: str) -> Finding:
    if importlib.util.find_spec(name) is None:
        advice = f"to {purpose}: pip install 'litebert[{extra}]'"
        return Finding(name=name, good=False, value="missing", advice=advice)
    return Finding(name=name, good=True, value=f"{importlib.metadata.version(name)} ({purpose})")


def _accelerators() -> list[Finding]:
    import torch

    threads = Finding(name="threads", good=True, value=str(choose_threads()))
    if torch.cuda.is_available():
        return [
            threads,
            *(_cuda(torch.cuda.get_device_properties(i)) for i in range(torch.cuda.device_count())),
        ]
    advice = "training runs on the processor, in float32; presets above tiny sizes want a GPU"
    return [threads, Finding(name="gpu", good=False, value="none that torch sees", advice=advice)]


def _kernels() -> list[Finding]:
    """What the gate chose for a model in bfloat16 on the first GPU, or why it chose nothing."""
    import torch

    from litebert.kernels.gate import FAMILIES, Gate

    gate = Gate.detect("cuda" if torch.cuda.is_available() else "cpu", torch.bfloat16)
    if len(set(gate.reasons.values())) == 1 and len(gate.reasons) == len(FAMILIES):
        reason = next(iter(gate.reasons.values()))
        return [Finding(name="kernels", good=False, value=f"none: {reason}")]
    return [
        Finding(
            name=f"kernels: {family}",
            good=family not in gate.reasons,
            value=FAMILIES[family]
            if family not in gate.reasons
            else f"off: {gate.reasons[family]}",
        )
        for family in FAMILIES
    ]


def _cuda(device: Any) -> Finding:
    bf16 = "bfloat16" if device.major >= 8 else "float16 and float32 only"
    return Finding(
        name="gpu", good=True, value=f"{device.name}, {device.total_memory / 2**30:.0f} GiB, {bf16}"
    )
