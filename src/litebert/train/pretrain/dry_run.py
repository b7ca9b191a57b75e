"""A rehearsal: a run ready to go in; memory, speed, time and disk it will take out, from a few real
steps. Nothing is kept."""

import math
import os
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Unpack

import torch

from litebert.convert.huggingface_writer import describe_class
from litebert.data.stream import Position
from litebert.errors import InterruptedRunError
from litebert.recipes import PretrainRecipe
from litebert.storage.snapshot import Snapshot
from litebert.train.graphs import WARM
from litebert.train.loop import Guard, Loop, State, Stopped
from litebert.train.pretrain.run import Pretraining
from litebert.train.progress import duration
from litebert.train.runtime import Place, Runtime, StopSignal

_STEPS = 3
"""Steps taken: the first warms up and compiles, the others are timed."""
_PASSES, _UPDATES = 16, WARM + 3
"""With CUDA graphs: passes after which some are replayed, however packed rows vary in shape; and
steps after which the update is."""


def run_dry(
    recipe: PretrainRecipe,
    data: Path | str,
    out: Path | str,
    *,
    init: Path | str | None = None,
    workers: int = 1,
    unverified: bool = False,
    **place: Unpack[Place],
) -> dict[str, Any]:
    """Run a few steps of a pretraining at the stage with most tokens in a batch; memory, speed,
    time and disk of the run. Nothing is written to `out`."""
    with Runtime.joined(dtype=recipe.dtype, **place) as runtime:
        training = Pretraining(
            recipe, data, runtime, init=init, workers=workers, unverified=unverified
        )
        return _measure(training, out)


def _measure(training: Pretraining, out: Path | str) -> dict[str, Any]:
    recipe, job, runtime = training.recipe, training.job, training.runtime
    staged = (recipe.batch_size, recipe.sequence_length, recipe.mask_fraction, recipe.depth)
    stages = [stages for stages in staged if stages is not None]
    starts = {start for one in stages for start in one.starts(job.steps) if start < job.steps}
    largest = max(sorted(starts), key=lambda step: _size(training, step))
    length, batch_size = training.feed.at(largest)
    end = min((start for start in starts if start > largest), default=job.steps)
    steps = _STEPS
    if training.graphs is not None:
        passes = math.ceil(batch_size / runtime.world_size / job.microbatch_rows(largest))
        wanted = max(math.ceil(_PASSES / passes), _UPDATES)
        steps = max(min(wanted, end - largest), _STEPS)
    training.feed.seek(largest, Position())
    loop = Loop(
        training.learner,
        runtime=runtime,
        guard=Guard(max_skips=steps, max_rollbacks=0),
        max_grad_norm=recipe.optimizer.max_grad_norm,
    )
    training.learner.working.model.train()
    times = []
    with StopSignal() as stop:
        for step in range(largest, largest + steps):
            began = time.monotonic()
            try:
                loop.step(State(step=step), stop)
            except Stopped:
                raise InterruptedRunError(
                    "interrupted; a rehearsal keeps nothing, the same command begins it anew"
                ) from None
            runtime.synchronize()
            times.append(time.monotonic() - began)
    training.feed.close()
    rows = min(loop.most_rows or batch_size, job.microbatch_rows(largest))
    seconds = min(times[1:])  # the others may compile or record
    speed = length * batch_size / seconds
    snapshot = Snapshot.capture(
        training.learner.model, training.learner.optimizer, step=0, epoch=0, index=0, recipe=""
    ).num_bytes()
    tokens = recipe.tokens_in(job.steps)
    numbers = sum(parameter.numel() for parameter in training.learner.model.parameters())
    checkpoints = 2 * 4 * numbers  # best and final, in float32
    used, there = _memory(runtime.device)
    return {
        "device": str(runtime.device),
        "batch_size": batch_size,
        "sequence_length": length,
        "mask_fraction": training.feed.mask_fraction(largest),
        "microbatch_rows": rows,
        "memory_bytes": used,
        "memory_total_bytes": there,
        "first_step_seconds": round(times[0], 3),
        "step_seconds": round(seconds, 4),
        "tokens_per_second": round(speed),
        "steps": job.steps,
        "tokens": tokens,
        "run_seconds": round(tokens / speed),
        "disk_bytes": snapshot * (recipe.keep_snapshots + 1) + checkpoints,
        "transformers": describe_class(training.learner.model.config.converted()),
        "disk_free_bytes": shutil.disk_usage(_existing(Path(out))).free,
    }


def dry_run_lines(measured: dict[str, Any]) -> dict[str, str]:
    """The measurements for a person to read."""
    where = "" if measured["device"].startswith("cuda") else " of main memory"
    return {
        "device": measured["device"],
        "largest batch": (
            f"{measured['batch_size']:,} × {measured['sequence_length']} tokens, "
            f"{measured['microbatch_rows']} at a time, {measured['mask_fraction']:.0%} masked"
        ),
        "memory": (
            f"{measured['memory_bytes'] / 2**30:.2f} of "
            f"{measured['memory_total_bytes'] / 2**30:.0f} GiB{where}"
        ),
        "first step": f"{measured['first_step_seconds']:.2f} s",
        "later steps": f"{measured['step_seconds']:.3f} s",
        "speed": f"{measured['tokens_per_second']:,} tokens/s",
        "run": f"{measured['steps']:,} steps, {measured['tokens']:,} tokens",
        "time": f"about {duration(measured['run_seconds'])}, without evaluations",
        "disk": (
            f"{measured['disk_bytes'] / 1e6:,.0f} MB, {measured['disk_free_bytes'] / 1e6:,.0f} MB "
            "free"
        ),
        "transformers": f"loads it {measured['transformers']}",
    }


def _size(training: Pretraining, step: int) -> tuple[int, int, float]:
    length, batch_size = training.feed.at(step)
    return length * batch_size, training.job.depth(step) or 0, training.feed.mask_fraction(step)


def _memory(device: torch.device) -> tuple[int, int]:
    """Bytes used at the peak, and bytes there are."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        return torch.cuda.max_memory_allocated(device), total
    unit = 1 if sys.platform == "darwin" else 1024
    peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
