"""What is learned, as the loop sees it: the protocols of a job, its batches and its losses, and the
model that learns it."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from litebert.data.stream import Position
from litebert.train.working import WorkingCopy


class _Sums(Protocol):
    """Losses of a microbatch as sums, so that they add up."""

    def __add__(self, other: Self) -> Self: ...
    def detach(self) -> Self: ...
    def numbers(self) -> dict[str, Tensor]: ...


class _Rows(Protocol):
    """A batch that can be cut into microbatches of rows."""

    def __len__(self) -> int: ...
    def rows(self, start: int, stop: int) -> Self: ...


B = TypeVar("B", bound=_Rows)
S = TypeVar("S", bound=_Sums)
B_contra = TypeVar("B_contra", bound=_Rows, contravariant=True)
S_co = TypeVar("S_co", bound=_Sums, covariant=True)
M = TypeVar("M", bound=nn.Module)
M_contra = TypeVar("M_contra", bound=nn.Module, contravariant=True)


class Job(Protocol[M_contra, B, S]):
    """What is learned, and from what."""

    steps: int
    """Optimizer updates in the run."""
    seed: int
    """Seed of a step's random numbers (dropout)."""

    def batch(self, step: int) -> B:
        """This rank's rows of the batch of `step`."""

    def counts(self, batch: B) -> dict[str, float]:
        """What losses are divided by, on this rank."""

    def microbatch_rows(self, step: int) -> int:
        """Rows in one forward and backward."""

    def losses(self, model: M_contra, microbatch: B, step: int) -> S:
        """Forward: the losses of some rows, as sums."""

    def mean(self, sums: S, counts: dict[str, float]) -> Tensor:
        """What is minimized, given the counts of all ranks."""

    def learning_rate(self, step: int) -> float:
        """The learning rate of `step`."""

    def describe(
        self, step: int, sums: dict[str, float], counts: dict[str, float]
    ) -> dict[str, Any]:
        """A step's entries in metrics.jsonl, `loss` and `tokens` among them."""

    def name(self, batch: B) -> str:
        """Which examples these are, for a message about a step that failed."""

    def position(self, step: int) -> Position:
        """Where `step` begins in the data."""

    def seek(self, step: int, position: Position) -> None:
        """Continue at `step`, which begins at `position`."""


class ForwardBackward(Protocol[B_contra, S_co]):
    """Forward and backward of a microbatch: its losses; gradients are added to the parameters'."""

    def __call__(self, microbatch: B_contra, step: int, counts: dict[str, float], /) -> S_co: ...

    def prefetch(self, step: int, /) -> None:
        """Prepare `step`, the next one, while the device is busy with this one."""


class Update(Protocol):
    """Gradients → weights and working copy."""

    def ready(self) -> None:
        """Do what does not depend on the gradients, which the device is still computing. A call may
        not follow."""

    def __call__(self) -> None: ...


@dataclass(kw_only=True)
class Learner(Generic[M, B, S]):
    """A job with the model that learns it."""

    job: Job[M, B, S]
    model: M
    """The float32 master weights."""
    working: WorkingCopy[M]
    optimizer: Optimizer
    passes: ForwardBackward[B, S] | None = None
    """Instead of the loop's own forward and backward: CUDA graphs."""
    update: Update | None = None
    """Instead of the optimizer's plain step, likewise."""
