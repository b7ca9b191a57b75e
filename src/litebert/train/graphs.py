"""CUDA graphs: forward and backward of a microbatch recorded once for each shape, then replayed without a word from Python.

A microbatch in; its losses, and gradients where an optimizer looks for them, out. A shape that is new runs as usual a few
times first, so that compilers and libraries have made up their minds. Where recording fails all goes on as before, said once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from litebert.data.batch import Batch
from litebert.data.layout import Layout, TensorBatch
from litebert.model.model import Model
from litebert.objective import Losses
from litebert.train.job import PretrainJob
from litebert.train.loop import out_of_memory

WARM = 2
"""Times that a shape runs as usual before it is recorded."""
SHAPES = 24
"""Shapes recorded at most; batches of others run as usual."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A graph, and the memory it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    counts: Tensor
    losses: Losses
    gradients: list[Tensor | None]


class Graphs:
    """Calls with a microbatch give its losses; the gradients are those of the model's parameters afterwards."""

    def __init__(self, job: PretrainJob, model: Model, say: Callable[[str], None]) -> None:
        self.job, self.model, self.say = job, model, say
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.seen: dict[object, int] = {}
        self.recorded: dict[object, Recorded] = {}
        self.is_on = True
        self.prepared: tuple[Batch, Layout, Tensor] | None = None
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, microbatch: Batch, step: int, counts: dict[str, float]) -> Losses:
        layout, flat = self.prepare(microbatch)
        depth = self.job.depth(step)
        shape = (layout.shapes, depth)
        self.seen[shape] = self.seen.get(shape, 0) + 1
        device = self.job.runtime.device
        divisors = torch.tensor([max(counts["masked"], 1.0), max(counts["examples"], 1.0)]).pin_memory()
        if shape not in self.recorded and self.is_on and self.seen[shape] > WARM and len(self.recorded) < SHAPES:
            try:
                self.recorded[shape] = self.record(layout, depth)
            except RuntimeError as error:
                if out_of_memory(error):
                    raise
                self.is_on = False
                self.say(f"CUDA graphs failed, so steps run without them: {str(error).splitlines()[0]}")
        found = self.recorded.get(shape)
        if found is None:
            losses, gradients = self.run(layout.tensors(device), divisors.to(device), depth)
        else:
            found.inputs.copy_(flat, non_blocking=True)
            found.counts.copy_(divisors, non_blocking=True)
            found.graph.replay()
            losses, gradients = found.losses.clone(), found.gradients
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        return losses

    def ahead(self, step: int) -> None:
        """Lay out the next batch while the device is busy, where it is read in one pass."""
        batch = self.job.feed.ahead(step)
        if batch is not None and self.job.microbatch_rows(step) >= len(batch):
            self.prepared = (batch, *self.prepare(batch))

    def prepare(self, microbatch: Batch) -> tuple[Layout, Tensor]:
        """How its rows lie, and the same in pinned memory."""
        if self.prepared is not None and self.prepared[0] is microbatch:
            return self.prepared[1:]
        layout = self.job.layout(microbatch)
        return layout, layout.flat()

    def run(self, batch: TensorBatch, counts: Tensor, depth: int | None) -> tuple[Losses, list[Tensor | None]]:
        losses = self.job.compute(self.model, batch, depth)
        total = losses.mean(num_masked=counts[0], num_examples=counts[1])
        gradients = torch.autograd.grad(total, self.parameters, allow_unused=True)
        return losses.detach(), list(gradients)

    def record(self, layout: Layout, depth: int | None) -> Recorded:
        inputs, counts = layout.flat().to(self.job.runtime.device), torch.ones(2, device=self.job.runtime.device)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            losses, gradients = self.run(layout.split(inputs), counts, depth)
        return Recorded(graph=graph, inputs=inputs, counts=counts, losses=losses, gradients=gradients)
