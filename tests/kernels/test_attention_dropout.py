"""Attention over packed rows drops weights as torch's attention does: each with the same
probability, those that stay are scaled up, and backward drops what forward dropped.

Which weights were dropped is seen in the kernels' own output: a value that is 1 at one key and 0
at all others shows the weight of that key.
"""

import pytest
import torch
from torch import Tensor

from litebert.kernels.attention import long
from litebert.kernels.attention.long import long_attention
from litebert.kernels.gate import Gate
from litebert.kernels.layer import _attend, _kernel
from litebert.model.positions import Packing
from tests.helpers.kernels import (  # skips all of this where kernels cannot run
    DEVICE,
    HALF,
    HAS_GPU,
)
from tests.kernels.test_short_attention import (
    bounds_of,
    errors,
    make_inputs,
    needs_gpu,
    outcome,
)

HEADS, SIZE, DROPOUT, EXACT = 2, 32, 0.25, 1.6e-2 if HAS_GPU else 2e-3
CASES = [
    pytest.param([5, 16, 0, 1, 31], [5, 16, 0, 1, 31], id="short"),
    pytest.param([150, 7, 0, 65], [150, 7, 0, 65], id="long"),
    pytest.param([3, 130, 0, 1], [140, 17, 5, 70], id="needed"),
]
cases = pytest.mark.parametrize(("queries", "keys"), CASES)


def attend(queries: list[int], keys: list[int], seed: int, dropout: float = DROPOUT) -> object:
    bounds, seeds = (bounds_of(queries), bounds_of(keys)), torch.tensor(seed, device=DEVICE)
    return lambda *parts: long_attention(
        [part[:, None] for part in parts], *bounds, max(queries), max(keys), seeds, dropout
    )


def weights_of(parts: list[Tensor], queries: list[int], keys: list[int], seed: int) -> list[Tensor]:
    """Of each row its weights after dropout: (heads, queries, keys)."""
    query, key, value = parts
    actual = []
    for first in range(0, max(keys), SIZE):
        places = torch.cat([torch.arange(count) for count in keys]).to(DEVICE)
        shows = (places[:, None] - first == torch.arange(SIZE, device=DEVICE)).to(value.dtype)
        out = attend(queries, keys, seed)(query, key, shows[:, None].expand_as(value).contiguous())  # type: ignore[operator]
        actual.append(out)
    full = torch.cat(actual, -1).transpose(0, 1)
    return [row[:, :, :count] for row, count in zip(full.split(queries, 1), keys, strict=True)]


def reference(
    parts: tuple[Tensor, ...], kept: list[Tensor], queries: list[int], keys: list[int]
) -> Tensor:
    """Row by row, written out, with the weights that stay."""
    rows = zip(
        *(part.split(sizes) for part, sizes in zip(parts, (queries, keys, keys), strict=True)),
        kept,
        strict=True,
    )
    outs = []
    for q, k, v, stays in rows:
        weights = (torch.einsum("qhd,khd->hqk", q, k) / SIZE**0.5).softmax(-1)
        outs.append(torch.einsum("hqk,khd->qhd", weights * stays / (1 - DROPOUT), v))
    return torch.cat(outs)


@cases
def test_both_ways_drop_the_same(queries: list[int], keys: list[int]) -> None:
    inputs = make_inputs(queries, keys, heads=HEADS, size=SIZE, dtype=HALF)
    kept = [weights != 0 for weights in weights_of(inputs[:3], queries, keys, 7)]
    actual = outcome(attend(queries, keys, 7), inputs)
    truth = outcome(
        lambda *parts: reference(parts, kept, queries, keys), [part.double() for part in inputs]
    )
    off = errors(actual, truth)
    assert max(off.values()) < EXACT, off


@cases
def test_each_weight_has_the_same_chance(queries: list[int], keys: list[int]) -> None:
    """And another seed, head or row drops others."""
    *parts, _ = make_inputs(queries, keys, heads=HEADS, size=SIZE, dtype=HALF)
    one, other, again = (
        torch.cat([weights.flatten() != 0 for weights in weights_of(parts, queries, keys, seed)])
        for seed in (1, 2, 1)
    )
    assert torch.equal(one, again)
    for kept in (one, other):
        assert (
            abs(float(kept.double().mean()) - (1 - DROPOUT))
            < 4 * (DROPOUT * (1 - DROPOUT) / len(kept)) ** 0.5
        )
    alike = float((one == other).double().mean())  # by chance p² + (1 - p)²
    assert abs(alike - (DROPOUT**2 + (1 - DROPOUT) ** 2)) < 4 * (0.25 / len(one)) ** 0.5
    first, second = next(row for row in weights_of(parts, queries, keys, 1) if row[0].numel() > 30)
    assert not torch.equal(first != 0, second != 0)


def test_nothing_is_dropped_with_probability_0() -> None:
    sizes = [5, 16, 1]
    inputs, bounds = make_inputs(sizes, sizes, heads=HEADS, size=SIZE, dtype=HALF), bounds_of(sizes)
    plain = outcome(
        lambda *parts: long_attention([part[:, None] for part in parts], bounds, bounds, 16, 16),
        inputs,
    )
    dropped = outcome(attend(sizes, sizes, 3, dropout=0.0), inputs)
    assert all(torch.equal(dropped[name], plain[name]) for name in plain)


def test_torch_takes_it_for_an_operator_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = long._notes_like
    monkeypatch.setattr(
        long, "_notes_like", lambda *args: torch.zeros_like(empty(*args))
    )  # nobody writes between rows
    *parts, _ = make_inputs([5, 20], [5, 20], heads=HEADS, size=SIZE, dtype=HALF)
    leaves = [part[:, None].detach().requires_grad_() for part in parts]
    bounds, seed = bounds_of([5, 20]), torch.tensor(1, device=DEVICE)
    torch.library.opcheck(long._forward, (leaves, bounds, bounds, 20, 20, seed, DROPOUT))


@needs_gpu
@pytest.mark.parametrize("longest", [100, 300])
@pytest.mark.filterwarnings("ignore")  # of compilers
def test_each_replay_drops_others(longest: int) -> None:
    """Plain, compiled and recorded: by torch's own generator, seeded before."""
    sizes = [longest, 40, 7]
    *parts, _ = make_inputs(sizes, sizes, heads=HEADS, size=64, dtype=torch.bfloat16)
    packing = Packing(bounds_of(sizes), longest)

    def attended(heads: list[Tensor], dropout: float) -> Tensor:
        gate = Gate(attention=True)
        kernel = _kernel(gate, packing, None, dropout)
        return _attend(gate, kernel, [each[None] for each in heads], packing, None, dropout)

    def call(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attended([query, key, value], DROPOUT)

    def drawn(draw: object, seed: int) -> Tensor:
        torch.manual_seed(seed)
        return draw(*parts).clone()  # type: ignore[operator]

    for way in (call, torch.compile(call, fullgraph=True)):
        first, again, other = drawn(way, 1), drawn(way, 1), drawn(way, 2)
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = call(*parts)
    actual = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        graph.replay()
        actual.append(out.clone())
    assert torch.equal(actual[0], actual[1])
    assert not torch.equal(actual[0], actual[2])
    mean = torch.stack([drawn(call, seed) for seed in range(400)]).double().mean(0)
    plain = attended(parts, 0.0).double()
    assert float((mean - plain).norm() / plain.norm()) < 0.1
