"""Recorded passes and memory, graphs pretended: what a graph holds is given up where a pass outside
of graphs needs it."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from litebert.model.batch import DeviceBatch, pinned
from litebert.packing import HostBatch
from litebert.train.graphs import WARM, Graphs, Recorded
from litebert.train.runtime import Runtime

CPU = Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=torch.float32)


def host(count: int) -> HostBatch:
    """A row of ones."""
    return HostBatch(arrays={"token_ids": np.ones((1, count), np.int64)}, longest=count)


class Job:
    """One weight times the sum of a microbatch."""

    runtime = CPU

    def layout(self, microbatch: int) -> HostBatch:
        return host(microbatch)

    def depth(self, step: int) -> None:
        return None

    def compute(self, model: nn.Linear, batch: DeviceBatch, depth: None) -> Tensor:
        return (model.weight * batch.token_ids.sum()).sum()

    def divisors(self, counts: dict[str, float]) -> list[float]:
        return [counts["rows"]]

    def divided(self, sums: Tensor, divisors: Tensor) -> Tensor:
        return sums / divisors[0]

    largest_count: int | None = None

    def largest(self, microbatch: int) -> int | None:
        return self.largest_count

    def prefetch(self, step: int) -> None:
        return None


class Small(Graphs):
    """On a device where a plain pass of `large` rows has no room beside recorded ones, and none has
    of `huge`."""

    large, huge = 8, 99
    records = 0

    def run(
        self, batch: DeviceBatch, divisors: Tensor, depth: int | None
    ) -> tuple[Any, list[Tensor | None]]:
        count = batch.token_ids.numel()
        if count == self.huge or (count == self.large and self.recorded):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().run(batch, divisors, depth)

    def record(self, layout: HostBatch, depth: int | None, count: int) -> Recorded:
        self.records += 1
        losses, gradients = super().run(DeviceBatch.of(layout), torch.ones(count), depth)

        class Graph:
            def replay(self) -> None: ...

        return Recorded(
            graph=Graph(),
            inputs=pinned(layout),
            divisors=torch.ones(count),
            losses=losses,
            gradients=gradients,
        )  # type: ignore[arg-type]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Small:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    return Small(Job(), nn.Linear(1, 1, bias=False), pytest.fail)  # type: ignore[arg-type]


def loss(graphs: Small, count: int) -> float:
    return float(graphs(count, 0, {"rows": 1.0}).detach() / graphs.model.weight.detach())  # type: ignore[operator]


def test_recorded_passes_give_their_memory_up_and_are_recorded_again(graphs: Small) -> None:
    for _ in range(WARM + 2):
        assert loss(graphs, 4) == pytest.approx(4)
    assert graphs.records == 1
    first, pool = graphs.recorded.copy(), graphs.pool
    assert loss(graphs, Small.large) == pytest.approx(8)
    assert not graphs.recorded
    assert graphs.pool is not pool
    assert loss(graphs, 4) == pytest.approx(4)
    assert graphs.records == 2
    assert graphs.recorded.keys() == first.keys()
    for _ in range(WARM + 2):  # the large shape is met again, and in the end both are recorded
        assert loss(graphs, Small.large) == pytest.approx(8)
        assert loss(graphs, 4) == pytest.approx(4)
    assert {shapes[0][1] for shapes, _ in graphs.recorded} == {4, 8}  # type: ignore[misc, index]


def test_a_pass_that_has_no_room_even_so_is_the_loops_to_divide(graphs: Small) -> None:
    for _ in range(WARM + 1):
        loss(graphs, 4)
    with pytest.raises(torch.OutOfMemoryError):
        loss(graphs, Small.huge)
    assert not graphs.recorded
    with pytest.raises(torch.OutOfMemoryError):
        loss(graphs, Small.huge)


def test_the_largest_shape_is_recorded_first(graphs: Small) -> None:
    graphs.job.largest_count = 7  # type: ignore[attr-defined]
    for count in (4, 5, 4, 5, 4, 5, 4, 5):
        assert loss(graphs, count) == pytest.approx(count)
    assert [shapes[0][1] for shapes, _ in graphs.recorded] == [7, 4, 5]  # type: ignore[misc, index]
    assert graphs.records == 3
    assert loss(graphs, 7) == pytest.approx(7)
    assert graphs.records == 3


def test_where_the_largest_shape_has_no_room_the_others_go_on(graphs: Small) -> None:
    graphs.job.largest_count = Small.huge  # type: ignore[attr-defined]
    for _ in range(WARM + 3):
        assert loss(graphs, 4) == pytest.approx(4)
    assert [shapes[0][1] for shapes, _ in graphs.recorded] == [4]  # type: ignore[misc, index]
    assert not graphs.has_room
    assert graphs.records == 1


def test_gradients_are_left_in_one_place(graphs: Small) -> None:
    """Those that a shape has; of others none."""
    graphs.gradients = [torch.zeros(2), torch.zeros(3)]
    first = graphs.to_shared([torch.ones(2), None])
    assert first[0] is graphs.gradients[0]
    assert first[1] is None
    second = graphs.to_shared([torch.full((2,), 5.0), torch.full((3,), 7.0)])
    assert second[0] is first[0]
    assert [tensor.tolist() for tensor in graphs.gradients] == [[5.0, 5.0], [7.0, 7.0, 7.0]]
