"""A rehearsal: a run ready to go in; memory, speed, time and disk it will take out, from a few real steps. Nothing is kept."""

import shutil
import time
from pathlib import Path
from typing import Any

import torch

from litebert.data.stream import Position
from litebert.snapshot import Snapshot
from litebert.train.guard import Guard
from litebert.train.log import Log
from litebert.train.loop import Loop, State
from litebert.train.pretrain import Pretraining
from litebert.train.progress import duration
from litebert.train.stop import StopSignal

STEPS = 3
"""Steps taken: the first warms up and compiles, the others are timed."""


def rehearse(training: Pretraining, out: Path | str) -> dict[str, Any]:
    """Take real steps at the stage with most tokens in a batch, and count what the whole run would take."""
    recipe, job, runtime = training.recipe, training.job, training.runtime
    largest = max(range(0, job.steps, max(job.steps // 1000, 1)), key=lambda step: _size(training, step))
    length, batch_size = training.feed.at(largest)
    training.feed.seek(largest, Position())
    loop: Loop[Any, Any, Any] = Loop(
        job,
        working=training.working,
        optimizer=training.optimizer,
        runtime=runtime,
        guard=Guard(max_skips=STEPS, max_rollbacks=0),
        log=Log(None),
        save=lambda state: None,
        restore=State,
        beside=lambda state, stop: None,
        max_grad_norm=recipe.optimizer.max_grad_norm,
    )
    training.working.model.train()
    times = []
    with StopSignal() as stop:
        for step in range(largest, largest + STEPS):
            began = time.monotonic()
            loop.step(State(step=step), stop)
            runtime.synchronize()
            times.append(time.monotonic() - began)
    training.feed.close()
    rows = min(loop.most_rows or batch_size, job.microbatch_rows(largest))
    seconds = min(times[1:])
    speed = length * batch_size / seconds
    snapshot = Snapshot.capture(training.model, training.optimizer, step=0, epoch=0, index=0, recipe="").num_bytes()
    total = recipe.tokens_in(job.steps)
    disk = snapshot * (recipe.keep_snapshots + 1) + 2 * 4 * sum(p.numel() for p in training.model.parameters())
    return {
        "device": str(runtime.device),
        "batch": f"{batch_size} × {length} tokens, microbatches of {rows}",
        "memory": _memory(runtime.device),
        "first_step_seconds": round(times[0], 2),
        "step_seconds": round(seconds, 4),
        "tokens_per_second": round(speed),
        "steps": job.steps,
        "tokens": total,
        "time": duration(total / speed),
        "disk": f"{disk / 1e6:,.0f} MB, {shutil.disk_usage(_existing(Path(out))).free / 1e6:,.0f} MB free",
    }


def _size(training: Pretraining, step: int) -> tuple[int, int]:
    length, batch_size = training.feed.at(step)
    return length * batch_size, training.job.depth(step) or 0


def _memory(device: torch.device) -> str:
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        return f"{torch.cuda.max_memory_allocated(device) / 2**30:.2f} GiB of {total / 2**30:.0f} GiB"
    import resource

    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB of main memory"


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
