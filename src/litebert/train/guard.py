"""Never step on a loss that is not a number: the loss and gradient norm of a step in, a verdict
out.

Skip; after too many in a row roll back to the last snapshot with half the learning rate; after too
many of those, stop.
"""

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any, Literal

Verdict = Literal["step", "skip", "rollback", "stop"]


class Guard:
    """Counts what went wrong. A spike is a gradient norm many times the median of the last
    hundred."""

    def __init__(self, *, max_skips: int, max_rollbacks: int, spike_factor: float = 0.0) -> None:
        self.max_skips = max_skips
        self.max_rollbacks = max_rollbacks
        self.spike_factor = spike_factor
        self.skips = 0
        self.rollbacks = 0
        self.norms: deque[float] = deque(maxlen=100)

    def judge(self, loss: float, norm: float) -> Verdict:
        """Whether this step may be taken, before it is."""
        if math.isfinite(loss) and math.isfinite(norm) and not self._is_spike(norm):
            self.skips = 0
            self.norms.append(norm)
            return "step"
        self.skips += 1
        if self.skips <= self.max_skips:
            return "skip"
        self.skips = 0
        self.rollbacks += 1
        return "rollback" if self.rollbacks <= self.max_rollbacks else "stop"

    def state_dict(self) -> dict[str, Any]:
        """What a snapshot keeps, so that a resumed run judges as this one would have."""
        return {"skips": self.skips, "rollbacks": self.rollbacks, "norms": list(self.norms)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skips, self.rollbacks = state["skips"], state["rollbacks"]
        self.norms = deque(state["norms"], maxlen=self.norms.maxlen)

    def _is_spike(self, norm: float) -> bool:
        known = len(self.norms) >= 20
        return bool(self.spike_factor) and known and norm > self.spike_factor * median(self.norms)
