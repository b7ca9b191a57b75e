"""The learning rate as a pure function of the step. In: a spec, the step, the length of the run.
Out: the learning rate.

Steps count from 0: `learning_rate_at(spec, 0, steps)` is that of the first update. Google's
schedule (ALBERT §A.4 and its optimization.py) begins with a learning rate of exactly 0 and counts
decay from step 0, so at the end of warm-up it drops from almost the peak to peak · (1 −
warmup/steps); the other schedules are continuous.
"""

import math
from collections.abc import Callable

from litebert.errors import ConfigError
from litebert.recipes import OptimizerSpec, Schedule


def learning_rate_at(spec: OptimizerSpec, step: int, steps: int) -> float:
    """The learning rate of update `step` in a run of `steps` updates, constant after the last."""
    warmup = spec.warmup_steps(steps)
    if spec.schedule == "reference":
        if step < warmup:
            return spec.learning_rate * step / warmup
        return spec.learning_rate * _between(
            spec.decay_end, (1 - min(step, steps) / steps) ** spec.decay_power
        )
    if step < warmup:
        return spec.learning_rate * (step + 1) / warmup
    progress = min((step - warmup) / max(steps - warmup, 1), 1.0)
    return spec.learning_rate * _between(
        spec.decay_end, _SHAPES[spec.schedule](progress, spec, warmup / steps)
    )


def scaled_learning_rate(rate: float, batch_size: int, reference_batch_size: int) -> float:
    """The √batch rule: `rate`, stated for `reference_batch_size` sequences, for a batch of another
    size.

    The noise of a gradient shrinks with the root of the batch (You et al. 2020, §4).
    """
    if batch_size < 1 or reference_batch_size < 1:
        raise ConfigError(
            f"batch sizes are at least 1; got {batch_size} and {reference_batch_size}"
        )
    return rate * math.sqrt(batch_size / reference_batch_size)


def _between(end: float, height: float) -> float:
    return end + (1 - end) * height


def _stable(progress: float, spec: OptimizerSpec, warmup: float) -> float:
    # decay_fraction is of the whole run, progress of what follows warm-up.
    falling = min(spec.decay_fraction / (1 - warmup), 1.0) if warmup < 1 else 1.0
    return 1.0 if progress <= 1 - falling else (1 - progress) / falling


# Height above the end, from 1 to 0, over the progress from the end of warm-up to the end of the
# run.
_SHAPES: dict[Schedule, Callable[[float, OptimizerSpec, float], float]] = {
    "polynomial": lambda progress, spec, warmup: (1 - progress) ** spec.decay_power,
    "linear": lambda progress, spec, warmup: 1 - progress,
    "cosine": lambda progress, spec, warmup: (1 + math.cos(math.pi * progress)) / 2,
    "constant": lambda progress, spec, warmup: 1.0,
    "stable": _stable,
}
