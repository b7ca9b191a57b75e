"""CUDA graphs, recorded once and then replayed without Python overhead: of forward and backward,
one for each shape of microbatch (`Graphs`), and of the optimizer's step (`RecordedUpdate`).

A microbatch in; its losses, and gradients on the model's parameters, out; then updated weights. A
new shape runs unrecorded a few times first, until compilers and libraries have chosen their
kernels. Where recording fails, steps continue unrecorded, reported once. A graph keeps the memory
that it was recorded with: if an unrecorded pass runs out of memory, all graphs are dropped for a
while. All graphs share one pool, and the largest possible shape is recorded first: its blocks hold
whatever any other shape needs. Dropout is drawn anew in each replay, from the seed that torch's
generator has then.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from litebert.model.batch import DeviceBatch, pinned
from litebert.model.model import Model
from litebert.optim.groups import AdamW
from litebert.optim.lamb import Lamb, StepGroup
from litebert.packing import HostBatch
from litebert.train.learner import WorkingCopy
from litebert.train.loop import out_of_memory
from litebert.train.runtime import Runtime

WARM = 2
"""Passes of a shape, or updates of the same tensors, that run before one is recorded."""
SHAPES = 24
"""Shapes recorded at most; batches of others run unrecorded."""


class _GraphJob(Protocol):
    """What graphs need of a job: its losses as a function of tensors on the device alone."""

    @property
    def runtime(self) -> Runtime: ...

    def layout(self, microbatch: Any, /) -> HostBatch:
        """How its rows lie."""

    def depth(self, step: int, /) -> int | None:
        """Layers applied at a step; none for all."""

    def compute(self, model: Model, batch: DeviceBatch, depth: int | None, /) -> Any:
        """The losses as sums, which can be cloned."""

    def divisors(self, counts: dict[str, float], /) -> list[float]:
        """What the sums are divided by."""

    def divided(self, sums: Any, divisors: Any, /) -> Tensor:
        """What is minimized, given the divisors as numbers or on the device."""

    def largest(self, microbatch: Any, /) -> Any | None:
        """One of as many rows that no other exceeds, whatever it says; None where sizes do not vary
        or do not matter."""

    def prefetch(self, step: int, /) -> Any | None:
        """The first microbatch of a step that is still to come, where it is to be had."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A graph, and the memory it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    divisors: Tensor
    losses: Any
    gradients: list[Tensor | None]
    """The same tensors in all graphs."""


class Graphs:
    """Calls with a microbatch give its losses; the gradients are those of the model's parameters
    afterwards."""

    def __init__(self, job: _GraphJob, model: Model, say: Callable[[str], None]) -> None:
        self.job, self.model, self.say = job, model, say
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.seen: dict[object, int] = {}
        self.recorded: dict[object, Recorded] = {}
        self.is_on = self.has_room = True
        self.prepared: tuple[object, HostBatch, Tensor] | None = None
        self.pool = torch.cuda.graph_pool_handle()
        self.gradients: list[Tensor] = []

    def __call__(self, microbatch: Any, step: int, counts: dict[str, float]) -> Any:
        layout, flat = self.prepare(microbatch)
        depth = self.job.depth(step)
        shape = (layout.shapes, depth)
        self.seen[shape] = self.seen.get(shape, 0) + 1
        device = self.job.runtime.device
        divisors = torch.tensor(self.job.divisors(counts)).pin_memory()
        is_due = (
            self.is_on
            and layout.is_static
            and self.seen[shape] > WARM
            and len(self.recorded) < SHAPES
        )
        if is_due and shape not in self.recorded:
            try:
                self.make_room(microbatch, depth, divisors)
                self.recorded[shape] = self.record(layout, depth, len(divisors))
            except RuntimeError as error:
                if out_of_memory(error):
                    raise
                self.is_on = False
                self.say(
                    f"CUDA graphs failed, so steps run without them: {str(error).splitlines()[0]}"
                )
        recorded = self.recorded.get(shape)
        if recorded is None or not layout.is_static:
            losses, gradients = self.plain(
                DeviceBatch.of(layout, device), divisors.to(device), depth
            )
        else:
            recorded.inputs.copy_(flat, non_blocking=True)
            recorded.divisors.copy_(divisors, non_blocking=True)
            recorded.graph.replay()
            losses, gradients = recorded.losses.clone(), recorded.gradients
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        return losses

    def prefetch(self, step: int) -> None:
        """Lay out the first microbatch of the next step while the device is busy with this one."""
        microbatch = self.job.prefetch(step)
        if microbatch is not None:
            self.prepared = (microbatch, *self.prepare(microbatch))

    def prepare(self, microbatch: object) -> tuple[HostBatch, Tensor]:
        """How its rows lie, and the same in pinned memory."""
        if self.prepared is not None and self.prepared[0] is microbatch:
            return self.prepared[1:]
        layout = self.job.layout(microbatch)
        return layout, pinned(layout)

    def plain(
        self, batch: Any, divisors: Tensor, depth: int | None
    ) -> tuple[Any, list[Tensor | None]]:
        """As usual, in the memory of the graphs if need be: shapes that are met again are recorded
        again."""
        try:
            return self.run(batch, divisors, depth)
        except RuntimeError as error:
            if not self.recorded or not out_of_memory(error):
                raise
        # outside of the handler, where the failed pass is no longer referred to
        self.forget()
        return self.run(batch, divisors, depth)

    def forget(self) -> None:
        """Give the graphs' memory back."""
        self.job.runtime.synchronize()  # one of them may be running
        self.recorded.clear()
        self.pool = torch.cuda.graph_pool_handle()
        torch.cuda.empty_cache()

    def make_room(self, microbatch: Any, depth: int | None, divisors: Tensor) -> None:
        """Record the largest shape, unless it is. A slightly larger one than those before would fit
        into none of their blocks, and take as much memory again; a smaller one fits."""
        largest = self.job.largest(microbatch) if self.has_room else None
        if largest is None:
            return
        layout, device = self.job.layout(largest), self.job.runtime.device
        shape = (layout.shapes, depth)
        if shape not in self.recorded:
            try:
                self.run(DeviceBatch.of(layout, device), divisors.to(device), depth)
                self.recorded[shape] = self.record(layout, depth, len(divisors))
                return
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
            # the shapes that come may be smaller
            self.has_room = False
            self.forget()

    def run(
        self, batch: Any, divisors: Tensor, depth: int | None
    ) -> tuple[Any, list[Tensor | None]]:
        losses = self.job.compute(self.model, batch, depth)
        gradients = torch.autograd.grad(
            self.job.divided(losses, divisors), self.parameters, allow_unused=True
        )
        return losses.detach(), list(gradients)

    def record(self, layout: HostBatch, depth: int | None, count: int) -> Recorded:
        device = self.job.runtime.device
        inputs, divisors = pinned(layout).to(device), torch.ones(count, device=device)
        self.gradients = self.gradients or [
            torch.empty_like(parameter) for parameter in self.parameters
        ]
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            losses, computed = self.run(DeviceBatch.within(layout, inputs), divisors, depth)
            gradients = self.to_shared(computed)
            del computed  # its memory is another graph's then
        return Recorded(
            graph=graph, inputs=inputs, divisors=divisors, losses=losses, gradients=gradients
        )

    def to_shared(self, computed: list[Tensor | None]) -> list[Tensor | None]:
        """Gradients where every graph leaves them: its own would each time be as large as the
        model."""
        pairs = list(zip(self.gradients, computed, strict=True))
        used = [(shared, new) for shared, new in pairs if new is not None]
        torch._foreach_copy_([shared for shared, _ in used], [new for _, new in used])
        return [None if new is None else shared for shared, new in pairs]


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """A graph, and where it reads the scalars of a step."""

    graph: torch.cuda.CUDAGraph
    scalars: Tensor


class RecordedUpdate:
    """A call is a step of the optimizer, with the learning rate that its groups have, and a refresh
    of the working copy.

    Between the moment when a step's loss is known and the next forward, the device would wait while
    the host launches hundreds of small kernels; a replay is one launch. What differs from step to
    step (learning rate, bias corrections) is computed on the host and copied to the device before,
    while the device is still at the gradients (`ready`).

    A graph holds addresses. So the first steps run unrecorded, and so do the first after a step met
    other tensors than the one before: a layer that joined, a snapshot that was loaded, fine-tuning
    that started over.
    """

    def __init__(
        self, optimizer: Lamb | AdamW, working: WorkingCopy, say: Callable[[str], None]
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
        is due, and copy the scalars, while the device is still at the gradients. A call may not
        follow."""
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
