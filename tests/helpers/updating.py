"""Weights whose gradients are a function of the step, updated as usual or by a recording: for
tests, on any device."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from litebert.optim.groups import make_optimizer, set_learning_rate
from litebert.recipes import OptimizerSpec
from litebert.storage.snapshot import Snapshot
from litebert.train.graphs import RecordedUpdate
from litebert.train.learner import WorkingCopy

SPECS = {
    "muon": OptimizerSpec(name="muon", learning_rate=0.02, weight_decay=0.1),
    "lamb": OptimizerSpec(
        name="lamb", learning_rate=0.02, bias_correction=True, norm_clamp=(0.5, 5.0)
    ),
    "google": OptimizerSpec(name="adamw", learning_rate=0.02, bias_correction=False),
    "adamw": OptimizerSpec(name="adamw", learning_rate=0.02),
}


class Stack(nn.Module):
    """A table, matrices of three shapes and vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.ModuleDict({"token": nn.Embedding(50, 32)})
        self.layers = nn.ModuleList([nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(64, 64)])
        self.norm = nn.LayerNorm(64)


class Rig:
    """A master, its rounded copy and an optimizer; a layer in `late` gets gradients from that step
    on."""

    def __init__(
        self, spec: OptimizerSpec, device: str = "cpu", late: dict[str, int] | None = None
    ) -> None:
        torch.manual_seed(0)
        self.spec, self.device, self.late = spec, device, late or {}
        self.model = Stack().to(device)
        self.working = WorkingCopy(self.model, torch.bfloat16)
        self.optimizer = make_optimizer(self.model.named_parameters(), spec)
        self.said: list[str] = []
        self.update: Callable[[], None] = self.plain
        self.start = self.weights()

    def recorded(self, kind: type[RecordedUpdate] = RecordedUpdate) -> RecordedUpdate:
        """From now on updates are recorded."""
        self.update = made = kind(self.optimizer, self.working, self.said.append)
        return made

    def plain(self) -> None:
        self.optimizer.step()
        self.working.refresh()

    def run(self, steps: Iterable[int], rate: Callable[[int], float] | None = None) -> "Rig":
        for step in steps:
            self.optimizer.zero_grad(set_to_none=True)
            generator = torch.Generator().manual_seed(step)
            for name, parameter in self.working.model.named_parameters():
                gradient = torch.randn(parameter.shape, generator=generator)
                if not any(
                    name.startswith(layer) and step < first for layer, first in self.late.items()
                ):
                    parameter.grad = gradient.to(self.device, torch.bfloat16)
            self.working.collect()
            # a warm-up, unless told otherwise
            set_learning_rate(
                self.optimizer,
                rate(step) if rate else self.spec.learning_rate * min(step + 1, 8) / 8,
            )
            self.update()
        return self

    def weights(self) -> Tensor:
        return torch.cat(
            [parameter.detach().flatten().double().cpu() for parameter in self.model.parameters()]
        )

    def distance(self, other: "Rig") -> float:
        """How far the two are from each other, in units of the way that this one came."""
        return float(
            (self.weights() - other.weights()).norm() / (self.weights() - self.start).norm()
        )

    def ages(self) -> list[Any]:
        """What the optimizer counts on the host."""
        return [
            {k: v for k, v in state.items() if not isinstance(v, Tensor)}
            for state in self.optimizer.state.values()
        ]

    def is_rounded(self) -> bool:
        """Whether the copy is the master, rounded."""
        pairs = zip(self.model.parameters(), self.working.model.parameters(), strict=True)
        return all(torch.equal(master.to(torch.bfloat16), rounded) for master, rounded in pairs)

    def assert_like(self, other: "Rig", *, close: float) -> None:
        """The same weights, up to `close`, the working copy their rounding, and a state that a
        snapshot holds alike."""
        assert other.distance(self) < close
        assert self.is_rounded()
        assert self.ages() == other.ages()
        kept, expected = (rig.optimizer.state_dict() for rig in (self, other))
        assert kept["param_groups"] == expected["param_groups"]
        assert all(
            kept["state"][number].keys() == state.keys()
            for number, state in expected["state"].items()
        )

    def snapshot(self, step: int) -> Snapshot:
        """A copy of its own."""
        taken = Snapshot.capture(self.model, self.optimizer, step=step, epoch=0, index=0, recipe="")
        model = {name: tensor.detach().clone() for name, tensor in taken.model.items()}
        kept = {
            number: {
                key: value.clone() if isinstance(value, Tensor) else value
                for key, value in state.items()
            }
            for number, state in taken.optimizer["state"].items()
        }
        optimizer = {"state": kept, "param_groups": taken.optimizer["param_groups"]}
        return Snapshot(step=step, epoch=0, index=0, recipe="", model=model, optimizer=optimizer)

    def restore(self, snapshot: Snapshot) -> None:
        snapshot.restore(self.model, self.optimizer)
        self.working.refresh()
