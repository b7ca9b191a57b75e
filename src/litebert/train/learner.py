"""What is learned and by what, as the loop sees it: the protocols of a job, its batches and its
losses; and the learner, whose model is a bf16 working copy of fp32 master weights."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from litebert.data.stream import Position
from litebert.kernels.gate import Gate
from litebert.model.model import Model
from litebert.objective.sums import Sums
from litebert.train.runtime import Runtime

if TYPE_CHECKING:
    from litebert.train.graphs import Graphs, RecordedUpdate


class WorkingCopy:
    """`model` computes; in float32 it is the master itself and nothing is copied.

    In bfloat16 matmuls are fast but a weight cannot take small steps, so optimizer, clipping and
    snapshots see the master alone: its rounded copy makes the gradients, which are summed in
    float32. The gate gives the copy its layer; with fp8 it also rounds the copy's weights to 8
    bits, which happens here once a step.
    """

    def __init__(self, master: Model, dtype: torch.dtype, *, gate: Gate | None = None) -> None:
        self.is_master = dtype == torch.float32
        self.model = master if self.is_master else copy.deepcopy(master).to(dtype)
        self._masters = _trained(master)
        self._copies = _trained(self.model)
        self._quantized = []
        if gate is not None:
            assert not (gate.quantizes and self.is_master), "fp8 needs a rounded copy"
            self._quantized = gate.apply(self.model)
        self._held: dict[Tensor, Tensor] | None = None

    @classmethod
    def on(cls, runtime: Runtime, model: Model, say: Callable[[str], None]) -> Self:
        """Of a model that is moved to the runtime's device, with the kernels that run there."""
        model.to(runtime.device)
        gate = runtime.gate(model.config.encoder)
        if gate.note is not None:
            say(gate.note)
        return cls(model, runtime.dtype, gate=gate)

    def hold_gradients(self) -> None:
        """From now on the master's gradients are added up in the same memory in every step: a
        recorded update reads it."""
        self._held = {}

    @torch.no_grad()
    def collect(self) -> None:
        """After a backward pass: move the gradients to the master."""
        if self.is_master:
            return
        new, rounded_new, old, rounded_old = [], [], [], []
        for master, rounded in zip(self._masters, self._copies, strict=True):
            if rounded.grad is not None and master.grad is None:
                master.grad = self._room(master)
                new.append(master.grad)
                rounded_new.append(rounded.grad)
            elif rounded.grad is not None and master.grad is not None:
                old.append(master.grad)
                rounded_old.append(rounded.grad)
        if new:
            torch._foreach_copy_(new, rounded_new)
        if old:
            torch._foreach_add_(old, rounded_old)
        self.clear()

    @torch.no_grad()
    def refresh(self) -> None:
        """After the master changed: round its weights again."""
        if not self.is_master:
            torch._foreach_copy_(self._copies, self._masters)
        for linear in self._quantized:
            linear.refresh()

    def clear(self) -> None:
        """Forget gradients of a pass that failed half-way."""
        for parameter in self._copies:
            parameter.grad = None

    def _room(self, master: Tensor) -> Tensor:
        """Where the gradient of a parameter goes."""
        if self._held is None:
            return torch.empty_like(master)
        if master not in self._held:
            self._held[master] = torch.empty_like(master)
        return self._held[master]


def examples_named(numbers: Iterable[int]) -> str:
    """Which examples these are, for a message: the first of them."""
    first, rest = [*numbers][:8], [*numbers][8:]
    return f"examples {', '.join(map(str, first))}" + (f" and {len(rest)} more" if rest else "")


def _trained(model: nn.Module) -> list[Tensor]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


class _Rows(Protocol):
    """A batch that can be cut into microbatches of rows."""

    def __len__(self) -> int: ...
    def rows(self, start: int, stop: int) -> Self: ...


B = TypeVar("B", bound=_Rows)
S = TypeVar("S", bound=Sums)


class Job(Protocol[B, S]):
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

    def losses(self, model: Model, microbatch: B, step: int) -> S:
        """Forward: the losses of some rows, as sums."""

    def mean(self, sums: S, counts: dict[str, float]) -> Tensor:
        """What is minimized, given the counts of all ranks."""

    def learning_rate(self, step: int) -> float:
        """The learning rate of `step`."""

    def describe(
        self, step: int, sums: dict[str, float], counts: dict[str, float]
    ) -> dict[str, Any]:
        """A step's entries in metrics.jsonl, `loss` and `tokens` among them."""

    def work(self, metrics: dict[str, Any]) -> float:
        """The relative cost of a step, by its entries in metrics.jsonl."""

    def work_left(self, step: int) -> float:
        """That of all steps from `step` on."""

    def name(self, batch: B) -> str:
        """Which examples these are, for a message about a step that failed."""

    def position(self, step: int) -> Position:
        """Where `step` begins in the data."""

    def seek(self, step: int, position: Position) -> None:
        """Continue at `step`, which begins at `position`."""


@dataclass(kw_only=True)
class Learner(Generic[B, S]):
    """A job with the model that learns it."""

    job: Job[B, S]
    model: Model
    """The float32 master weights."""
    working: WorkingCopy
    optimizer: Optimizer
    passes: "Graphs | None" = None
    """Instead of the loop's own forward and backward: CUDA graphs."""
    update: "RecordedUpdate | None" = None
    """Instead of the optimizer's plain step, likewise."""
