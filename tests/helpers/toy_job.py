"""A job small enough to run a thousand times: linear regression, its batches a pure function of the
step."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from litebert.data.stream import Position
from litebert.optim.groups import make_optimizer
from litebert.recipes import OptimizerSpec
from litebert.storage.snapshot import Snapshot, SnapshotStore
from litebert.train.learner import Learner, WorkingCopy
from litebert.train.log import Record
from litebert.train.loop import BetweenSteps, Event, Guard, Incident, Loop, State, StepDone
from litebert.train.runtime import Runtime, StopSignal


@dataclass(frozen=True)
class ToySums:
    error: Tensor

    def __add__(self, other: "ToySums") -> "ToySums":
        return ToySums(self.error + other.error)

    def detach(self) -> "ToySums":
        return ToySums(self.error.detach())

    def numbers(self) -> dict[str, Tensor]:
        return {"error": self.error}


@dataclass(frozen=True)
class ToyBatch:
    x: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, start: int, stop: int) -> "ToyBatch":
        return ToyBatch(self.x[start:stop])


@dataclass
class ToyJob:
    """Learns to add up eight numbers. `bad_steps` give NaN `times` times; `oom_above` rows run out
    of memory."""

    steps: int = 20
    seed: int = 5
    bad_steps: frozenset[int] = frozenset()
    times: int = 10**9
    oom_above: int = 10**9
    micro: int = 8
    dropout: float = 0.1
    seen: list[int] = field(default_factory=list)

    def batch(self, step: int) -> ToyBatch:
        self.seen.append(step)
        return ToyBatch(torch.randn(8, 8, generator=torch.Generator().manual_seed(step)))

    def counts(self, batch: ToyBatch) -> dict[str, float]:
        return {"rows": float(len(batch))}

    def microbatch_rows(self, step: int) -> int:
        return self.micro

    def losses(self, model: nn.Module, microbatch: ToyBatch, step: int) -> ToySums:
        if len(microbatch) > self.oom_above:
            raise torch.OutOfMemoryError("faked")
        kept = torch.nn.functional.dropout(microbatch.x, self.dropout)  # draws from the step's seed
        guess = model(kept.to(next(model.parameters()).dtype))[:, 0].float()
        error = (guess - microbatch.x.sum(1)).square().sum()
        if step in self.bad_steps and self.times > 0:
            self.times -= 1
            error = error * float("nan")
        return ToySums(error)

    def mean(self, sums: ToySums, counts: dict[str, float]) -> Tensor:
        return sums.error / counts["rows"]

    def learning_rate(self, step: int) -> float:
        return 0.01

    def describe(
        self, step: int, sums: dict[str, float], counts: dict[str, float]
    ) -> dict[str, Any]:
        return {"loss": sums["error"] / counts["rows"], "tokens": 8}

    def work(self, metrics: dict[str, Any]) -> float:
        return 1.0

    def work_left(self, step: int) -> float:
        return float(self.steps - step)

    def name(self, batch: ToyBatch) -> str:
        return "examples 1, 2, 3"

    def position(self, step: int) -> Position:
        return Position(0, step)

    def seek(self, step: int, position: Position) -> None:
        """A batch is a function of its step."""


class ToyRun:
    """A loop with snapshots every five steps in a folder."""

    def __init__(
        self, folder: Path, job: ToyJob, dtype: torch.dtype = torch.float32, **guard: Any
    ) -> None:
        torch.manual_seed(0)
        self.job = job
        self.every = 5
        self.model = nn.Linear(8, 1)
        self.working = WorkingCopy(self.model, dtype)
        self.optimizer = make_optimizer(
            self.model.named_parameters(), OptimizerSpec(learning_rate=0.01)
        )
        self.store = SnapshotStore(folder)
        self.records: list[Record] = []
        self.loop = Loop(
            Learner(job=job, model=self.model, working=self.working, optimizer=self.optimizer),
            runtime=Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=dtype),
            guard=Guard(**({"max_skips": 2, "max_rollbacks": 1} | guard)),
            snapshots=self,
            emit=self.emit,
            max_grad_norm=1.0,
        )

    def save(self, state: State) -> bool:
        extra = {
            "tokens": state.tokens,
            "seconds": state.seconds,
            "learning_rate_scale": state.learning_rate_scale,
        }
        where: dict[str, Any] = {
            "step": state.step,
            "epoch": 0,
            "index": state.step,
            "recipe": "toy",
        }
        snapshot = Snapshot.capture(self.model, self.optimizer, **where, extra=extra)
        return self.store.save(snapshot) is not None

    def restore(self) -> State:
        snapshot = self.store.latest()
        if snapshot is None:
            return State()
        snapshot.restore(self.model, self.optimizer)
        self.working.refresh()
        return State(step=snapshot.step, **snapshot.extra)

    def emit(self, event: Event) -> None:
        match event:
            case BetweenSteps(state=state) if state.step % self.every == 0:
                self.save(state)
            case StepDone(step=step, metrics=metrics):
                self.records.append({"kind": "step", "step": step, **metrics})
            case Incident(step=step, kind=kind, message=message):
                record = {"kind": "event", "step": step, "event": kind, "message": message}
                self.records.append(record)

    def run(self) -> State:
        with StopSignal() as stop:
            return self.loop.run(self.restore(), stop)

    def weights(self) -> list[float]:
        return [
            number
            for parameter in self.model.parameters()
            for number in parameter.flatten().tolist()
        ]
