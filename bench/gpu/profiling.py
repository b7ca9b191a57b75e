"""Where the time of a step goes on a GPU: some steps under torch's profiler in; kernels by class,
the largest, and gaps out.

Recording slows the host down, so `kernel_ms` counts device time alone, and `idle` is what no
kernel fills of the step as it was timed, without a profiler. Kernels of a graph follow one another
within a few microseconds: `short_gaps` are those. `long_gaps` are waits for the host, longer here
than without a profiler; `gaps` names the longest and what ended each of them.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

STEPS = 3
LARGEST = 24
LONGEST = 6
LONG_GAP = 10.0
"""Microseconds. Kernels of one graph, or started well ahead, are nearer to one another."""
CLASSES = {
    "copies": r"^Mem(cpy|set)|copy_kernel|CatArray",
    "attention": (
        r"flash|fmha|sdpa|softmax_warp|cudnn::fusion|attention|"
        r"^\w*(forward|backward|query|key)\w*_kernel$"
    ),
    "optimizer": r"multi_tensor|foreach|[aA]dam",
    "matmuls": r"nvjet|gemm|gemv|cutlass|cublas|splitK|scaled_mm",
    "elementwise": r"^triton_|elementwise|reduce_kernel|layer_norm|GammaBeta|[sS]oft[mM]ax|"
    r"index|gather|scatter"
    r"|^_?(norm|gelu|total|loss|round|survey)_\w*kernel$",
}
"""The first that fits a kernel's name. Triton's are named after all they fuse, so what they are
comes before what they name."""
KINDS = {"elementwise": r"^triton_(poi|red|per)_", "matmuls": r"^triton_tem_"}


class Kernel(NamedTuple):
    """What ran on the device, in microseconds."""

    name: str
    start: float
    end: float


def group(name: str) -> str:
    """The class of a kernel."""
    for table in (KINDS, CLASSES):
        for kind, pattern in table.items():
            if re.search(pattern, name):
                return kind
    return "other"


def record(step: Callable[[], Any], *, is_cuda: bool, steps: int = STEPS) -> list[Kernel]:
    """What runs in some steps; on a CPU the operators, which stand one in another."""
    activity, device = (
        (ProfilerActivity.CUDA, DeviceType.CUDA)
        if is_cuda
        else (ProfilerActivity.CPU, DeviceType.CPU)
    )
    step()  # the last one before may still be at work
    if is_cuda:
        torch.cuda.synchronize()
    with profile(activities=[activity]) as seen:
        for _ in range(steps):
            step()
        if is_cuda:
            torch.cuda.synchronize()
    events = (
        event
        for event in seen.events() or ()
        if event.device_type == device and not event.is_user_annotation
    )
    return [Kernel(event.name, event.time_range.start, event.time_range.end) for event in events]


def summary(kernels: Iterable[Kernel], *, step_ms: float, steps: int = STEPS) -> dict[str, Any]:
    """What a row says; milliseconds are those of one step."""
    ordered = sorted(kernels, key=lambda kernel: kernel.start)
    times: dict[str, float] = defaultdict(float)
    classes: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for kernel in ordered:
        took = (kernel.end - kernel.start) / 1000 / steps
        times[kernel.name] += took
        classes[group(kernel.name)] += took
        counts[kernel.name] += 1
    gaps, busy = waits(ordered)
    short = [microseconds for microseconds, _, _ in gaps if microseconds < LONG_GAP]
    long = [gap for gap in gaps if gap[0] >= LONG_GAP]
    top = sorted(times, key=times.__getitem__, reverse=True)[:LARGEST]
    return {
        "timed_ms": step_ms,
        "kernel_ms": round(sum(times.values()), 3),
        "busy_ms": round(busy / 1000 / steps, 3),
        "idle": round(1 - busy / 1000 / steps / step_ms, 4),
        "kernels": round(len(ordered) / steps, 1),
        "classes": {
            kind: round(classes[kind], 3)
            for kind in sorted(classes, key=classes.__getitem__, reverse=True)
        },
        "short_gaps": {
            "ms": round(sum(short) / 1000 / steps, 3),
            "count": round(len(short) / steps, 1),
        },
        "long_gaps": {
            "ms": round(sum(gap[0] for gap in long) / 1000 / steps, 3),
            "count": round(len(long) / steps, 1),
        },
        "gaps": [
            {"ms": round(took / 1000, 3), "after": a[:80], "before": b[:80]}
            for took, a, b in sorted(long)[: -LONGEST - 1 : -1]
        ],
        "top": [
            {
                "ms": round(times[name], 3),
                "count": round(counts[name] / steps, 1),
                "name": name[:120],
            }
            for name in top
        ],
    }


def waits(ordered: list[Kernel]) -> tuple[list[tuple[float, str, str]], float]:
    """Gaps as (microseconds, kernel before, kernel after), and the time in which something ran;
    kernels may overlap."""
    gaps, busy, last = [], 0.0, None
    for kernel in ordered:
        if last is None or kernel.start > last.end:
            if last is not None:
                gaps.append((kernel.start - last.end, last.name, kernel.name))
            busy += kernel.end - kernel.start
            last = kernel
        elif kernel.end > last.end:
            busy += kernel.end - last.end
            last = kernel
    return gaps, busy
