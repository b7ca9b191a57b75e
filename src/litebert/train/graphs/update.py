"""The update as one CUDA graph: the optimizer's step and the rounding of its weights, recorded once
and then replayed.
 Gradients in; changed weights, in the master and in the working copy, out. Between the moment when
a step's loss is known and the next forward pass the device has nothing to do until the host has
started hundreds of small kernels; a replay is one start. What differs from step to step (the rate,
bias corrections) is counted out on the host and copied to the device before, while it is still at
the gradients (`ready`): between their norm and the update lie a glance at it and that start.
 Recorded are addresses. So the first steps run as usual, and do so again where a step meets other
tensors than the one before: a layer that joined, moments from a snapshot, a new beginning. Where
recording fails all goes on as before, said once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from litebert.optim.step import SplitStep, StepGroup
from litebert.train.working import WorkingCopy

WARM = 2
"""Steps over the same tensors that run as usual before one is recorded."""


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """A graph, and where it reads the numbers of a step."""

    graph: torch.cuda.CUDAGraph
    scalars: Tensor


class RecordedUpdate:
    """A call is a step of the optimizer, with the rates that its groups have, and a refresh of the
    working copy."""

    def __init__(
        self, optimizer: SplitStep, working: WorkingCopy[Any], say: Callable[[str], None]
    ) -> None:
        self.optimizer, self.working, self.say = optimizer, working, say
        self.tensors: list[Tensor | None] = []
        """What the last step read and wrote; held, so that no other tensor can be taken for one of
        them."""
        self.seen = 0
        """Steps over those tensors."""
        self.parts: list[StepGroup] | None = None
        """What the step moves that all is ready for."""
        self.recorded: RecordedStep | None = None
        self.is_on = True
        working.hold_gradients()

    def ready(self) -> None:
        """Before each call, the rates set: see which tensors it touches, record where that is due,
        and send the numbers."""
        if not self.is_on:
            return
        self.parts = parts = self.optimizer.step_groups()
        self.look(parts)
        if parts and self.recorded is None and self.seen >= WARM:
            self.try_record(parts)
        if self.recorded is not None:
            numbers = [number for part in parts for number in self.optimizer.scalars(part)]
            there = self.recorded.scalars
            there.copy_(
                torch.tensor(numbers, dtype=there.dtype, pin_memory=there.is_cuda),
                non_blocking=True,
            )

    def __call__(self) -> None:
        if self.parts is None:
            self.ready()
        parts, self.parts = self.parts, None
        self.seen += 1
        if self.recorded is None or parts is None:
            self.run()
        else:
            self.recorded.graph.replay()
            for part in parts:
                self.optimizer.advance(part)

    def run(self) -> None:
        """As without recording."""
        self.optimizer.step()
        self.working.refresh()

    def look(self, parts: list[StepGroup]) -> None:
        """Forget what was recorded over other tensors than those of this step."""
        tensors = self.touched(parts)
        if len(tensors) != len(self.tensors) or any(
            one is not other for one, other in zip(tensors, self.tensors, strict=True)
        ):
            self.tensors, self.seen, self.recorded = tensors, 0, None

    def touched(self, parts: list[StepGroup]) -> list[Tensor | None]:
        """Weights, gradients and moments in order, a None after each part."""
        found: list[Tensor | None] = []
        for part in parts:
            for parameter in part.parameters:
                found += [parameter, parameter.grad]
                found += [
                    value
                    for value in self.optimizer.state[parameter].values()
                    if isinstance(value, Tensor)
                ]
            found.append(None)
        return found

    def try_record(self, parts: list[StepGroup]) -> None:
        """Recording runs nothing on the device and counts nothing on the host: where it fails, the
        step is still to do."""
        try:
            self.recorded = self.record(parts)
        except RuntimeError as error:
            self.is_on, self.tensors = False, []
            self.say(
                "the optimizer could not be recorded, so its steps run without a CUDA graph: "
                f"{str(error).splitlines()[0]}"
            )

    def record(self, parts: list[StepGroup]) -> RecordedStep:
        count = sum(len(self.optimizer.scalars(part)) for part in parts)
        scalars = torch.zeros(count, device=parts[0].parameters[0].device)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.move(parts, scalars)
        return RecordedStep(graph=graph, scalars=scalars)

    def move(self, parts: list[StepGroup], scalars: Tensor) -> None:
        """What is recorded: the whole update, with its numbers on the device."""
        numbers = iter(scalars.unbind())
        for part in parts:
            self.optimizer.apply(part, [next(numbers) for _ in self.optimizer.scalars(part)])
        self.working.refresh()
