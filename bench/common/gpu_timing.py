"""Calls recorded in CUDA graphs, which take turns: milliseconds on the GPU alone."""

import statistics
from collections.abc import Callable
from typing import Any

import torch

CALLS = 20
"""Calls in one graph."""


def record(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # compiles the kernels
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def in_turns(graphs: dict[Any, torch.cuda.CUDAGraph], rounds: int) -> dict[Any, float]:
    """Median milliseconds of one call, after a round that does not count."""
    times: dict[Any, list[float]] = {key: [] for key in graphs}
    for _ in range(rounds + 1):
        for key, graph in graphs.items():
            times[key].append(_milliseconds(graph))
    return {key: round(statistics.median(taken[1:]), 4) for key, taken in times.items()}


def _milliseconds(graph: torch.cuda.CUDAGraph) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / CALLS
