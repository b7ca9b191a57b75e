"""A difference is the best approximation of its rank, exact at full rank, and only of changes."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from litebert.storage import difference, int8
from litebert.storage.difference import TOKENS, Ranks

MATRIX, SMALL, HEAD, SPAN = (
    "layer.weight",
    "layer.bias",
    "heads.classify.output.weight",
    "heads.joint_span.dense.weight",
)
FULL = Ranks(rank=1000, token_rank=1000)
Weights = dict[str, Tensor]


@pytest.fixture
def base() -> Weights:
    draw = torch.Generator().manual_seed(0)
    shapes = {
        TOKENS: (40, 24),
        MATRIX: (48, 70),
        "same.weight": (32, 32),
        SMALL: (48,),
        "same.bias": (7,),
    }
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


@pytest.fixture
def tuned(base: Weights) -> Weights:
    draw = torch.Generator().manual_seed(1)
    changed = {
        name: base[name] + 0.01 * torch.randn(base[name].shape, generator=draw)
        for name in (TOKENS, MATRIX, SMALL)
    }
    heads = {HEAD: torch.randn(2, 48, generator=draw), SPAN: torch.randn(48, 96, generator=draw)}
    return base | changed | heads


def round_trip(tuned: Weights, base: Weights, ranks: Ranks) -> Weights:
    shapes = {name: tuple(weight.shape) for name, weight in tuned.items()}
    return difference.unpack(difference.pack(tuned, base, ranks), base, shapes, ranks)


def test_full_rank_is_exact_up_to_int8_rounding(tuned: Weights, base: Weights) -> None:
    restored = round_trip(tuned, base, FULL)
    assert restored.keys() == tuned.keys()
    for name in (TOKENS, MATRIX):
        change = tuned[name] - base[name]
        assert (restored[name] - tuned[name]).norm() < 0.01 * change.norm(), name
    for name in tuned.keys() - {TOKENS, MATRIX, SPAN}:
        assert torch.equal(restored[name], tuned[name]), name
    assert torch.equal(
        restored[SPAN], int8.unpack(int8.pack({SPAN: tuned[SPAN]}, 64), 64)[SPAN]
    )  # the base does not have it


def test_the_approximation_is_the_best_of_its_rank(tuned: Weights, base: Weights) -> None:
    change = tuned[MATRIX] - base[MATRIX]
    sizes = torch.linalg.svdvals(change)
    for rank in (1, 5, 17):
        lost = (
            round_trip(tuned, base, Ranks(rank=rank, token_rank=0))[MATRIX] - tuned[MATRIX]
        ).norm()
        assert torch.isclose(
            lost, sizes[rank:].norm(), rtol=1e-3
        )  # what Eckart and Young say is left


def test_a_change_of_low_rank_is_restored(base: Weights) -> None:
    low = torch.outer(torch.linspace(-1, 1, 48), torch.linspace(0, 1, 70)) * 0.1
    restored = round_trip(base | {MATRIX: base[MATRIX] + low}, base, Ranks(rank=1, token_rank=0))
    assert torch.allclose(restored[MATRIX], base[MATRIX] + low, atol=0.1 / 100)


def test_unchanged_weights_are_not_stored(tuned: Weights, base: Weights) -> None:
    assert difference.pack(base, base, FULL) == {}
    stored = difference.pack(tuned, base, FULL)
    assert not [name for name in stored if name.startswith("same")]
    without = difference.pack(tuned, base, Ranks(rank=4, token_rank=0))
    assert not [name for name in without if name.startswith(TOKENS)]
    assert torch.equal(round_trip(tuned, base, Ranks(rank=4, token_rank=0))[TOKENS], base[TOKENS])


def test_the_token_embedding_has_a_rank_of_its_own(tuned: Weights, base: Weights) -> None:
    sizes = torch.linalg.svdvals(tuned[TOKENS] - base[TOKENS])
    for rank in (1, 6):
        lost = (
            round_trip(tuned, base, Ranks(rank=20, token_rank=rank))[TOKENS] - tuned[TOKENS]
        ).norm()
        assert torch.isclose(lost, sizes[rank:].norm(), rtol=1e-3)


def test_the_layout_is_exact_and_sizes_grow_with_the_ranks(tuned: Weights, base: Weights) -> None:
    shapes = {name: tuple(weight.shape) for name, weight in tuned.items()}
    before = {name: tuple(weight.shape) for name, weight in base.items()}
    kinds = {torch.int8: "I8", torch.bfloat16: "BF16", torch.float32: "F32"}
    sizes = []
    for ranks in (Ranks(rank=3, token_rank=0), Ranks(rank=20, token_rank=5, group_size=8), FULL):
        stored = difference.pack(tuned, base, ranks)
        layout = difference.layout(shapes, before, ranks)
        changed = {
            tensor: kind
            for name, tensors in layout.items()
            if "same" not in name
            for tensor, kind in tensors.items()
        }
        assert {
            name: (kinds[tensor.dtype], tuple(tensor.shape)) for name, tensor in stored.items()
        } == changed
        sizes.append(sum(tensor.nbytes for tensor in stored.values()))
    assert all(small < large for small, large in pairwise(sizes))


def test_the_same_weights_give_the_same_bytes(tuned: Weights, base: Weights) -> None:
    once, again = (difference.pack(tuned, base, Ranks(rank=4, token_rank=4)) for _ in range(2))
    assert once.keys() == again.keys()
    assert all(torch.equal(once[name], again[name]) for name in once)
