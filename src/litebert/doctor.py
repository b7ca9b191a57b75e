"""What this machine can do and what is missing: a list of findings, gathered without changing or
fetching anything."""

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.infer.cpu import has_bfloat16
from litebert.threads import choose_threads, num_cores

# module → (extra that brings it, what it is for)
_OPTIONAL = {
    "pyarrow": ("parquet", "read .parquet files"),
    "zstandard": ("zstd", "read .zst files"),
    "ray": ("ray", "build data on a cluster"),
    "onnx": ("onnx", "export models"),
    "onnxruntime": ("onnx", "predict without torch"),
    "openvino": ("openvino", "predict without torch, fastest in int8"),
    "starlette": ("serve", "serve models over HTTP"),
    "uvicorn": ("serve", "serve models over HTTP"),
    "tensorboard": ("tensorboard", "write TensorBoard events"),
    "matplotlib": ("lab", "draw studies"),
}
_CORE = ("torch", "numpy", "safetensors", "sentencepiece", "tyro", "rich", "jaxtyping")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked at."""

    name: str
    """What was looked at."""
    good: bool = True
    """False where something that litebert can do is not possible here."""
    value: str
    """What was found."""
    advice: str = ""
    """What to do, where something is missing."""


def examine(folder: Path | str = ".") -> list[Finding]:
    """Look at Python, packages, processor, memory, disk at `folder`, and accelerators."""
    findings = [
        Finding(name="python", value=f"{platform.python_version()} on {platform.platform()}"),
        *(_package(name, "", "pip install litebert") for name in _CORE),
        *(
            _package(name, f" ({purpose})", f"to {purpose}: pip install 'litebert[{extra}]'")
            for name, (extra, purpose) in _OPTIONAL.items()
        ),
        Finding(name="processor", value=f"{num_cores()} cores"),
    ]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        findings.append(Finding(name="memory", value=f"{memory / 2**30:.1f} GiB"))
    path = Path(os.path.realpath(folder))  # resolve() raises on a loop of links
    existing = next(
        each for each in (path, *path.parents) if each.exists()
    )  # it may be yet to come
    free = shutil.disk_usage(existing).free
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
    return Finding(name="engine", value=f"{name}{whose}: {reason}; {exact[processor()]}")


def _package(name: str, purpose: str, advice: str) -> Finding:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if importlib.util.find_spec(name) is not None:
            return Finding(name=name, value=f"{importlib.metadata.version(name)}{purpose}")
    return Finding(name=name, good=False, value="missing", advice=advice)


def _accelerators() -> list[Finding]:
    import torch

    threads = Finding(name="threads", value=str(choose_threads()))
    if not torch.cuda.is_available():
        precision = "in float32"
        if has_bfloat16():
            precision += ", or faster with --dtype bfloat16"
        advice = f"training runs on the processor, {precision}; presets above tiny sizes want a GPU"
        missing = Finding(name="gpu", good=False, value="none that torch sees", advice=advice)
        return [threads, missing]
    devices = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [threads, *(Finding(name="gpu", value=_gpu(device)) for device in devices)]


def _gpu(device: Any) -> str:
    bf16 = "bfloat16" if device.major >= 8 else "float16 and float32 only"
    return f"{device.name}, {device.total_memory / 2**30:.0f} GiB, {bf16}"


def _kernels() -> list[Finding]:
    """What the gate chose for a model in bfloat16 on the first GPU, or why it chose nothing."""
    import torch

    from litebert.kernels.gate import FAMILIES, Gate

    gate = Gate.detect("cuda" if torch.cuda.is_available() else "cpu", torch.bfloat16)
    reasons = gate.reasons
    if len(set(reasons.values())) == 1 and len(reasons) == len(FAMILIES):
        return [Finding(name="kernels", good=False, value=f"none: {next(iter(reasons.values()))}")]
    return [
        Finding(name=f"kernels: {family}", good=False, value=f"off: {reasons[family]}")
        if family in reasons
        else Finding(name=f"kernels: {family}", value=purpose)
        for family, purpose in FAMILIES.items()
    ]
