"""What a head computed for one batch of encoded examples, and what is decoded from it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from litebert.packing import HostBatch
from litebert.shapes import Float, Int
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import TaskExample
from litebert.tasks.task import TaskCard


@dataclass(frozen=True, kw_only=True, eq=False)
class Outputs:
    """Logits of one batch, in float32."""

    logits: Float[np.ndarray, "..."]
    """A row for each row of the batch (classify, multilabel, regress, choose) or for each word
    (tag); start and end of each token as the last axis (span); the start of each token
    (joint_span)."""
    depths: Int[np.ndarray, " rows"] | None = None
    """After how many layers each row left; None where none could leave early."""
    unanswerable: Float[np.ndarray, " rows"] | None = None
    """High where the passage holds no answer (joint_span)."""
    ends: Callable[[Int[np.ndarray, "rows beam"]], Float[np.ndarray, "rows beam seq"]] | None = None
    """Logits of the end for each of several starts (joint_span)."""


Batches = Iterable[tuple[Int[np.ndarray, " units"], HostBatch, Outputs]]
"""Numbers of the units, their batch and what the head computed for it; computed while read."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """Encoded examples to predict, and what the head computes for them."""

    card: TaskCard
    inputs: Inputs
    examples: Sequence[TaskExample]
    batches: Batches
