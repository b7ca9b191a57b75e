"""The optimizer of a run as frozen data: its constants and its learning-rate schedule. ALBERT §4.1,
§A.4."""

from dataclasses import dataclass
from typing import Literal

from litebert.checks import check_choices, check_number, check_whole, is_number, shorten
from litebert.errors import ConfigError

OptimizerName = Literal["lamb", "adamw", "muon"]
Schedule = Literal["reference", "polynomial", "linear", "cosine", "constant", "stable"]

LIMIT = 2**53
"""Counts beyond this are not exact as floats."""


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """An optimizer and its learning rate over the run."""

    name: OptimizerName = "adamw"
    """lamb (the paper's, for large batches), adamw, or muon (orthogonalized momentum for matrices,
    adamw for the rest). Another one than the recipe's brings its own defaults."""
    learning_rate: float = 5e-4
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Decay rates of the first and second moments, per step."""
    momentum: float = 0.95
    """For muon: momentum of matrices, per step."""
    epsilon: float = 1e-6
    """Added to the square root of the second moment."""
    weight_decay: float = 0.01
    """Decoupled weight decay, multiplied by the learning rate; norms and biases have none."""
    bias_correction: bool = True
    """Divide the moments by 1 − βᵗ. Google's LAMB and AdamW do not."""
    norm_clamp: tuple[float, float] | None = None
    """For lamb: bounds of a tensor's norm in the trust ratio (φ of the LAMB paper); none in
    ALBERT."""
    warmup: int | float = 0.06
    """Linear warm-up: a number of steps, or below 1 a fraction of the run."""
    schedule: Schedule = "linear"
    """Learning-rate schedule after warm-up: linear, cosine, constant, stable (constant, then linear
    to the end), polynomial, or reference (Google's polynomial: counted from step 0, so it drops
    where warm-up ends)."""
    decay_power: float = 1.0
    """Exponent of the polynomial and reference schedules."""
    decay_end: float = 0.0
    """Learning rate at the last step, as a fraction of the peak."""
    decay_fraction: float = 0.2
    """For stable: fraction of the run, at its end, over which the learning rate falls."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this global norm; 0 disables clipping."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_number(self, "learning_rate", 0, 100)
        check_number(self, "momentum", 0, 0.9999)
        check_number(self, "epsilon", 0, 1)
        check_number(self, "weight_decay", 0, 100)
        check_number(self, "decay_power", 0, 100)
        check_number(self, "decay_end", 0, 1)
        check_number(self, "decay_fraction", 0, 1)
        check_number(self, "max_grad_norm", 0, 1e9)
        if not _is_pair(self.betas) or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"betas are two numbers from 0 to below 1; got {shorten(self.betas)}")
        if self.norm_clamp is not None:
            if not _is_pair(self.norm_clamp) or not 0 <= self.norm_clamp[0] <= self.norm_clamp[1]:
                raise ConfigError(
                    f"norm_clamp is a lower and an upper bound, or none; got "
                    f"{shorten(self.norm_clamp)}"
                )
            if self.name != "lamb":
                raise ConfigError("norm_clamp belongs to lamb; leave it out, or choose lamb")
        if isinstance(self.warmup, float):
            if not 0 <= self.warmup < 1:
                raise ConfigError(
                    "warmup is a number of steps or a fraction of the run below 1; got "
                    f"{shorten(self.warmup)}"
                )
        else:
            check_whole(self, "warmup", 0, LIMIT)

    def warmup_steps(self, steps: int) -> int:
        """Warm-up steps in a run of `steps` steps."""
        return round(self.warmup * steps) if isinstance(self.warmup, float) else self.warmup


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(is_number(item) for item in value)


OPTIMIZERS: dict[OptimizerName, OptimizerSpec] = {
    # Google's release: optimization.py, lamb_optimizer.py and the flags of run_pretraining.py; its
    # 3,125 of 125,000 steps of warm-up as a fraction.
    "lamb": OptimizerSpec(
        name="lamb",
        learning_rate=1.76e-3,
        betas=(0.9, 0.999),
        epsilon=1e-6,
        weight_decay=0.01,
        bias_correction=False,
        norm_clamp=None,
        warmup=0.025,
        schedule="reference",
        decay_power=1.0,
        decay_end=0.0,
        max_grad_norm=1.0,
    ),
    "adamw": OptimizerSpec(name="adamw", learning_rate=5e-4),
    # Measured on the pre-norm model: docs/decisions/plateau.md.
    "muon": OptimizerSpec(name="muon", learning_rate=2e-3),
}
"""Each optimizer with its defaults for pretraining."""
LAMB_BATCH_SIZE = 4096
"""Sequences per step that LAMB's learning rate is stated for."""
