"""Attention over packed rows of up to 512 tokens errs no more than attention written out, forward
and backward; the truth is float64.

On a CPU the kernels run in Triton's interpreter (TRITON_INTERPRET=1 before the start, where triton
is installed).
"""

import pytest
import torch
from torch import Tensor

from litebert.kernels.attention import long
from litebert.kernels.attention.long import Tile, Tiles
from tests.helpers.kernels import (  # skips all of this where kernels cannot run
    HALF,
    HAS_GPU,
)
from tests.kernels.test_short_attention import (
    bounds_of,
    errors,
    make_inputs,
    needs_gpu,
    outcome,
    reference,
    side_by_side,
    truth_of,
)

EDGES = [512, 1, 129, 300, 127, 128, 0, 130, 255, 256, 257, 511]
FEW = [9, 1, 0, 77, 130, 3, 0, 1, 64, 65, 2, 128]
RAGGED, NEEDED = [5, 0, 200, 1, 131], [2, 0, 70, 1, 0]
SMALL = Tiles(Tile(16, 32, 4, 2), Tile(32, 16, 4, 2), Tile(16, 32, 4, 2))
"""Tiles by which short rows have several blocks too."""


def ours(queries: list[int], keys: list[int]) -> object:
    bounds = bounds_of(queries), bounds_of(keys)
    return lambda *parts: long.long_attention(
        [part[:, None] for part in parts], *bounds, max(queries), max(keys)
    )


def assert_errs_no_more(inputs: list[Tensor], queries: list[int], keys: list[int]) -> None:
    truth = truth_of(inputs, queries, keys)
    plain = errors(outcome(lambda q, k, v: reference(q, k, v, queries, keys), inputs), truth)
    mine = errors(outcome(ours(queries, keys), inputs), truth)
    assert all(mine[name] <= 1.1 * plain[name] for name in plain), (mine, plain)


@pytest.mark.parametrize("has_descriptors", [True, False])
@pytest.mark.parametrize(
    ("queries", "keys", "heads", "size"),
    [
        (EDGES, EDGES, 1, 64),
        (FEW, EDGES, 1, 64),
        ([300], [300], 2, 64),
        ([2], [512], 1, 64),
        ([512], [2], 1, 64),
        ([140, 7], [140, 7], 2, 128),
        ([140, 7], [140, 7], 3, 16),
    ],
    ids=["edges", "few queries", "one row", "few", "few keys", "large heads", "small heads"],
)
def test_it_errs_no_more_than_attention_written_out(
    queries: list[int],
    keys: list[int],
    heads: int,
    size: int,
    has_descriptors: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long, "DESCRIPTORS", has_descriptors)
    assert_errs_no_more(
        make_inputs(queries, keys, heads=heads, size=size, dtype=HALF), queries, keys
    )


@pytest.mark.skipif(HAS_GPU, reason="tiles as small as these are for the interpreter")
def test_tiles_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(long.TILES, 64, SMALL)
    many = [1 + position * 7 % 40 for position in range(30)]
    assert_errs_no_more(make_inputs(many, many, heads=1, size=16, dtype=HALF), many, many)


def test_a_token_alone_attends_to_itself() -> None:
    *parts, gradient = make_inputs([1], [1], size=64, dtype=HALF)
    actual = outcome(ours([1], [1]), [*parts, gradient])
    assert torch.equal(actual["out"], parts[2])
    assert torch.equal(actual["value"], gradient)
    assert all(actual[name].abs().max() < 1e-3 for name in ("query", "key"))


def test_a_row_without_keys_gives_zeros() -> None:
    queries, keys = [3, 140, 2], [0, 130, 5]
    inputs = make_inputs(queries, keys, size=16, dtype=HALF)
    actual = outcome(ours(queries, keys), inputs)
    assert actual["out"][:3].eq(0).all()
    assert actual["query"][:3].eq(0).all()
    assert all(tensor.isfinite().all() for tensor in actual.values())


def test_a_row_does_not_see_the_others() -> None:
    """The same row alone and among others, to the bit; and twice the same bits."""
    inputs = make_inputs(RAGGED, RAGGED, heads=2, dtype=HALF)
    among, again = (outcome(ours(RAGGED, RAGGED), inputs) for _ in range(2))
    place = slice(sum(RAGGED[:2]), sum(RAGGED[:3]))
    alone = outcome(ours([200], [200]), [part[place].clone() for part in inputs])
    for name, tensor in among.items():
        assert torch.equal(tensor[place], alone[name]), name
        assert torch.equal(tensor, again[name]), name


@pytest.mark.parametrize("factor", [30, -30])
@pytest.mark.filterwarnings(
    "ignore:.* encountered in:RuntimeWarning"
)  # the interpreter's, of keys that are not there
def test_large_scores_do_not_overflow(factor: float) -> None:
    query, key, value, gradient = make_inputs(RAGGED, RAGGED, heads=2, dtype=HALF)
    inputs = [
        factor * query.abs(),
        30 * key.abs(),
        value,
        gradient,
    ]  # all scores far from 0, on one side
    actual = outcome(ours(RAGGED, RAGGED), inputs)
    assert all(tensor.isfinite().all() for tensor in actual.values())
    truth = truth_of(inputs, RAGGED, RAGGED)
    assert errors(actual, truth)["out"] < 1e-2


@pytest.mark.parametrize("kind", ["one number", "heads first", "shifted"])
def test_a_gradient_is_read_right_wherever_it_lies(kind: str) -> None:
    *parts, gradient = make_inputs(RAGGED, RAGGED, heads=2, dtype=HALF)
    others = {
        "one number": gradient[:1, :1, :1].expand_as(gradient),
        "heads first": gradient.transpose(0, 1).contiguous().transpose(0, 1),
        "shifted": torch.cat([gradient.flatten()[:1], gradient.flatten()])[1:].view_as(gradient),
    }
    near, far = others[kind].contiguous().clone(), others[kind]
    expected, found = (outcome(ours(RAGGED, RAGGED), [*parts, lying]) for lying in (near, far))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(("grouping", "queries"), [("qkv", RAGGED), ("q kv", NEEDED)])
def test_side_by_side_they_give_the_same_bits(grouping: str, queries: list[int]) -> None:
    """One tensor and one gradient of it, against three of each."""
    *parts, gradient = make_inputs(queries, RAGGED, heads=2, dtype=HALF)
    apart = outcome(ours(queries, RAGGED), [*parts, gradient])
    leaves = [part.requires_grad_() for part in side_by_side(parts, grouping)]
    out = long.long_attention(
        leaves, bounds_of(queries), bounds_of(RAGGED), max(queries), max(RAGGED)
    )
    together = torch.autograd.grad(out, leaves, gradient)
    assert all(found.is_contiguous() for found in together)
    assert torch.equal(out, apart["out"])
    for found, name in zip(
        [side for part in together for side in part.unbind(1)],
        ["query", "key", "value"],
        strict=True,
    ):
        assert torch.equal(found, apart[name]), name


@pytest.mark.parametrize(("grouping", "queries"), [("qkv", RAGGED), ("q kv", NEEDED)])
def test_torch_takes_it_for_an_operator_of_its_own(
    grouping: str, queries: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schema, shapes without data, autograd and compiling with a free number of tokens: torch's own
    checks."""
    empty = long._notes_like
    monkeypatch.setattr(
        long, "_notes_like", lambda *args: torch.zeros_like(empty(*args))
    )  # nobody writes between rows
    *parts, _ = make_inputs(queries, RAGGED, heads=1, dtype=HALF)
    leaves = [part.requires_grad_() for part in side_by_side(parts, grouping)]
    torch.library.opcheck(
        long._forward,
        (leaves, bounds_of(queries), bounds_of(RAGGED), max(queries), max(RAGGED), None, 0.0),
    )


@needs_gpu
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("is_needed", [False, True])
def test_it_errs_no_more_than_flash_attention(size: int, is_needed: bool) -> None:
    from torch.nn.attention.varlen import varlen_attn

    keys = torch.randint(1, 513, (64,), generator=torch.Generator().manual_seed(1)).tolist()
    queries = [1 + count // 7 for count in keys] if is_needed else keys
    inputs = make_inputs(queries, keys, heads=4, size=size, dtype=HALF)
    bounds = bounds_of(queries), bounds_of(keys)
    theirs = outcome(lambda q, k, v: varlen_attn(q, k, v, *bounds, max(queries), max(keys)), inputs)
    truth = truth_of(inputs, queries, keys)
    mine, flash = errors(outcome(ours(queries, keys), inputs), truth), errors(theirs, truth)
    assert all(mine[name] <= 1.1 * flash[name] for name in mine), (mine, flash)


@needs_gpu
@pytest.mark.parametrize("grouping", ["q k v", "q kv", "qkv"])
@pytest.mark.filterwarnings("ignore")  # of compilers
def test_it_is_compiled_and_replayed(grouping: str) -> None:
    """Compiled with a free number of tokens, and as a CUDA graph: the same bits."""
    inputs = make_inputs(EDGES, EDGES, size=64, dtype=HALF)
    bounds = bounds_of(EDGES)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = side_by_side([query, key, value], grouping)
        attended = torch.ops.litebert.long_attention(parts, bounds, bounds, 512, 512, None, 0.0)[0]
        assert isinstance(attended, Tensor)
        return attended

    plain, compiled = (
        outcome(attend, inputs),
        outcome(torch.compile(attend, dynamic=True, fullgraph=True), inputs),
    )
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        recorded = outcome(attend, inputs)
    graph.replay()
    torch.cuda.synchronize()
    for name, tensor in plain.items():
        assert torch.equal(tensor, compiled[name]), name
        assert torch.equal(tensor, recorded[name]), name
