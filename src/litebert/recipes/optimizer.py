"""How weights are changed, as frozen data: the optimizer's constants and the course of the rate.
ALBERT §4.1, §A.4."""

from dataclasses import dataclass
from typing import Literal, get_args

from litebert.checks import check_choice, check_number, check_type, check_whole, is_number
from litebert.errors import ConfigError

OptimizerName = Literal["lamb", "adamw", "muon"]
Decay = Literal["reference", "polynomial", "linear", "cosine", "constant", "stable"]

LIMIT = 2**53
"""Counts beyond this are not exact as floats."""


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """An optimizer and its rate over the run."""

    name: OptimizerName = "adamw"
    """lamb (the paper's, for large batches), adamw, or muon (orthogonal steps for matrices, adamw
    for the rest)."""
    rate: float = 5e-4
    """Peak of the learning rate."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Decay rates of the first and second moment, in each step."""
    momentum: float = 0.95
    """For muon: decay rate of a matrix's momentum, in each step."""
    epsilon: float = 1e-6
    """Added to the root of the second moment."""
    weight_decay: float = 0.01
    """Decoupled decay, as a fraction of a weight for each unit of rate; norms and biases have
    none."""
    bias_correction: bool = True
    """Whether moments are divided by 1 − βᵗ. Google's LAMB and AdamW do not."""
    norm_clamp: tuple[float, float] | None = None
    """For lamb: bounds of a tensor's norm in the trust ratio, φ of the LAMB paper; none in
    ALBERT."""
    warmup: int | float = 0.06
    """Length of the linear warm-up: steps (a whole number) or a fraction of the run (below 1)."""
    decay: Decay = "linear"
    """Course of the rate after warm-up: reference (Google's: counted from step 0, so it drops where
    warm-up ends), polynomial (the same, joined), linear, cosine, constant, stable (flat, then
    linear over the end)."""
    decay_power: float = 1.0
    """Exponent of the reference and polynomial decay."""
    decay_end: float = 0.0
    """Rate at the last step, as a fraction of the peak."""
    decay_fraction: float = 0.2
    """For stable: the part of the run, at its end, in which the rate falls."""
    max_grad_norm: float = 1.0
    """Gradients of all parameters together are scaled down to this length; 0 leaves them."""

    def __post_init__(self) -> None:
        check_choice(self, "name", get_args(OptimizerName))
        check_choice(self, "decay", get_args(Decay))
        check_number(self, "rate", 0, 100)
        check_number(self, "momentum", 0, 0.9999)
        check_number(self, "epsilon", 0, 1)
        check_number(self, "weight_decay", 0, 100)
        check_number(self, "decay_power", 0, 100)
        check_number(self, "decay_end", 0, 1)
        check_number(self, "decay_fraction", 0, 1)
        check_number(self, "max_grad_norm", 0, 1e9)
        check_type(self, "bias_correction", bool, "true or false")
        if not _is_pair(self.betas) or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"betas are two numbers from 0 to below 1; got {self.betas!r}")
        if self.norm_clamp is not None:
            if not _is_pair(self.norm_clamp) or not 0 <= self.norm_clamp[0] <= self.norm_clamp[1]:
                raise ConfigError(
                    f"norm_clamp is a lower and an upper bound, or none; got {self.norm_clamp!r}"
                )
            if self.name != "lamb":
                raise ConfigError("norm_clamp belongs to lamb; leave it out, or choose lamb")
        if isinstance(self.warmup, float):
            if not 0 <= self.warmup < 1:
                raise ConfigError(
                    "warmup is a number of steps or a fraction of the run below 1; got "
                    f"{self.warmup!r}"
                )
        else:
            check_whole(self, "warmup", 0, LIMIT)

    def warmup_steps(self, steps: int) -> int:
        """Steps of warm-up in a run of `steps` steps."""
        return round(self.warmup * steps) if isinstance(self.warmup, float) else self.warmup


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(is_number(item) for item in value)
