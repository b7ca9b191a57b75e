"""The optimizer's step and the refresh of the working copy as one CUDA graph, recorded once and
then replayed.

Gradients in; updated weights, in the master and in the working copy, out. Between the moment when a
step's loss is known and the next forward, the device would wait while the host launches hundreds of
small kernels; a replay is one launch. What differs from step to step (learning rate, bias
corrections) is computed on the host and copied to the device before, while the device is still at
the gradients (`ready`).

A graph holds addresses. So the first steps run unrecorded, and so do the first after a step met
other tensors than the one before: a layer that joined, a snapshot that was loaded, fine-tuning that
started over. Where recording fails, steps continue unrecorded, reported once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from litebert.optim.step import SplitStep, StepGroup
from litebert.train.working import WorkingCopy

WARM = 2
"""Steps over the same tensors that run unrecorded before one is recorded."""


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """A graph, and where it reads the scalars of a step."""

    graph: torch.cuda.CUDAGraph
    scalars: Tensor


class RecordedUpdate:
    """A call is a step of the optimizer, with the learning rate that its groups have, and a refresh
    of the working copy."""

    def __init__(
        self, optimizer: SplitStep, working: WorkingCopy[Any], say: Callable[[str], None]
    ) -> None:
        self.optimizer, self.working, self.say = optimizer, working, say
        self.tensors: list[Tensor | None] = []
        """What the last step read and wrote; held, so that no other tensor can be taken for one of
        them."""
        self.seen = 0
        """Steps over those tensors."""
        self.step_groups: list[StepGroup] | None = None
        """What the prepared step updates."""
        self.recorded: RecordedStep | None = None
        self.is_on = True
        working.hold_gradients()

    def ready(self) -> None:
        """Before each call, the learning rate set: see which tensors it touches, record where that
        is due, and copy the scalars."""
        if not self.is_on:
            return
        self.step_groups = step_groups = self.optimizer.step_groups()
        self.look(step_groups)
        if step_groups and self.recorded is None and self.seen >= WARM:
            self.try_record(step_groups)
        if self.recorded is not None:
            numbers = [
                number
                for step_group in step_groups
                for number in self.optimizer.scalars(step_group)
            ]
            there = self.recorded.scalars
            there.copy_(
                torch.tensor(numbers, dtype=there.dtype, pin_memory=there.is_cuda),
                non_blocking=True,
            )

    def __call__(self) -> None:
        if self.step_groups is None:
            self.ready()
        step_groups, self.step_groups = self.step_groups, None
        self.seen += 1
        if self.recorded is None or step_groups is None:
            self.run()
        else:
            self.recorded.graph.replay()
            for step_group in step_groups:
                self.optimizer.advance(step_group)

    def run(self) -> None:
        """Unrecorded."""
        self.optimizer.step()
        self.working.refresh()

    def look(self, step_groups: list[StepGroup]) -> None:
        """Forget what was recorded over other tensors than those of this step."""
        tensors = self.touched(step_groups)
        if len(tensors) != len(self.tensors) or any(
            one is not other for one, other in zip(tensors, self.tensors, strict=True)
        ):
            self.tensors, self.seen, self.recorded = tensors, 0, None

    def touched(self, step_groups: list[StepGroup]) -> list[Tensor | None]:
        """Weights, gradients and moments in order, a None after each step_group."""
        tensors: list[Tensor | None] = []
        for step_group in step_groups:
            for parameter in step_group.parameters:
                tensors += [parameter, parameter.grad]
                tensors += [
                    value
                    for value in self.optimizer.state[parameter].values()
                    if isinstance(value, Tensor)
                ]
            tensors.append(None)
        return tensors

    def try_record(self, step_groups: list[StepGroup]) -> None:
        """Recording runs nothing on the device and counts nothing on the host: where it fails, the
        step is still to do."""
        try:
            self.recorded = self.record(step_groups)
        except RuntimeError as error:
            self.is_on, self.tensors = False, []
            self.say(
                "the optimizer could not be recorded, so its steps run without a CUDA graph: "
                f"{str(error).splitlines()[0]}"
            )

    def record(self, step_groups: list[StepGroup]) -> RecordedStep:
        count = sum(len(self.optimizer.scalars(step_group)) for step_group in step_groups)
        scalars = torch.zeros(count, device=step_groups[0].parameters[0].device)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.move(step_groups, scalars)
        return RecordedStep(graph=graph, scalars=scalars)

    def move(self, step_groups: list[StepGroup], scalars: Tensor) -> None:
        """What is recorded: the whole update, with its scalars on the device."""
        numbers = iter(scalars.unbind())
        for step_group in step_groups:
            self.optimizer.apply(
                step_group, [next(numbers) for _ in self.optimizer.scalars(step_group)]
            )
        self.working.refresh()
