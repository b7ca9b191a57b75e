"""Attention over short packed rows errs no more than torch's own, forward and backward; the truth
is float64."""

import pytest
import torch
from torch import Tensor

from litebert.kernels.attention import short
from tests.helpers.kernels import DEVICE, HAS_GPU  # skips all of this where kernels cannot run

needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
RAGGED = [5, 16, 0, 1, 31, 17]
NEEDED = [2, 0, 0, 1, 9, 3]
LONG = [128, 64, 127, 1, 0, 65]
EXACT = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Relative error of results rounded to the type, with weights rounded to it between the
matmuls."""
DTYPES = list(EXACT) if HAS_GPU else [torch.float32, torch.float16]
"""The interpreter multiplies the bits of bfloat16 as if they were integers."""


def bounds_of(sizes: list[int]) -> Tensor:
    return torch.tensor([0, *sizes]).cumsum(0).to(DEVICE, torch.int32)


def make_inputs(
    queries: list[int], keys: list[int], *, heads: int = 3, size: int = 16, dtype: torch.dtype
) -> list[Tensor]:
    """Query, key, value and the output's gradient; the first three are slices of wider tensors, as
    after a fused matmul."""
    torch.manual_seed(0)
    wide = torch.randn(sum(keys), 3, heads, size).to(DEVICE, dtype)
    query = (
        wide[:, 0]
        if queries == keys
        else torch.randn(sum(queries), 2, heads, size).to(DEVICE, dtype)[:, 1]
    )
    gradient = torch.randn(sum(queries), heads, size).to(DEVICE, dtype)
    return [query, wide[:, 1], wide[:, 2], gradient]


def reference(
    query: Tensor, key: Tensor, value: Tensor, queries: list[int], keys: list[int]
) -> Tensor:
    """Row by row, written out; a row without keys gives zeros."""
    rows = zip(query.split(queries), key.split(keys), value.split(keys), strict=True)
    scores = ((torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5, v) for q, k, v in rows)
    return torch.cat([torch.einsum("hqk,khd->qhd", s.softmax(-1), v) for s, v in scores])


def outcome(attend: object, inputs: list[Tensor]) -> dict[str, Tensor]:
    """The output and the three gradients."""
    *parts, gradient = inputs
    leaves = [part.detach().requires_grad_() for part in parts]  # strides stay
    out = attend(*leaves)  # type: ignore[operator]
    actual = [out, *torch.autograd.grad(out, leaves, gradient)]
    return dict(
        zip(["out", "query", "key", "value"], [tensor.detach() for tensor in actual], strict=True)
    )


def errors(found: dict[str, Tensor], truth: dict[str, Tensor]) -> dict[str, float]:
    return {
        name: float((tensor.double() - truth[name]).norm() / truth[name].norm())
        for name, tensor in found.items()
    }


def ours(queries: list[int], keys: list[int]) -> object:
    bounds = bounds_of(queries), bounds_of(keys)
    return lambda *parts: short.short_attention(
        [part[:, None] for part in parts], *bounds, max(queries), max(keys)
    )


def truth_of(inputs: list[Tensor], queries: list[int], keys: list[int]) -> dict[str, Tensor]:
    return outcome(
        lambda q, k, v: reference(q, k, v, queries, keys), [part.double() for part in inputs]
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [16, 32, 64, 128])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        (RAGGED, RAGGED),
        (NEEDED, RAGGED),
        (RAGGED, [3, 0, 4, 1, 40, 2]),
        (LONG, LONG),
        ([9, 3, 0, 1, 0, 1], LONG),
    ],
    ids=["all", "needed", "rows without keys", "long", "needed of long"],
)
def test_it_equals_attention_written_out(
    queries: list[int], keys: list[int], size: int, dtype: torch.dtype
) -> None:
    inputs = make_inputs(queries, keys, size=size, dtype=dtype)
    if size * inputs[0].element_size() > 256:
        pytest.skip("heads too large for shared memory")
    actual = errors(outcome(ours(queries, keys), inputs), truth_of(inputs, queries, keys))
    assert max(actual.values()) < EXACT[dtype], actual


def test_a_row_does_not_see_the_others() -> None:
    """The same row alone and among others, to the bit; and twice the same bits."""
    inputs = make_inputs(RAGGED, RAGGED, dtype=torch.float16)
    among = outcome(ours(RAGGED, RAGGED), inputs)
    place = slice(sum(RAGGED[:4]), sum(RAGGED[:5]))
    alone = outcome(ours([31], [31]), [part[place] for part in inputs])
    again = outcome(ours(RAGGED, RAGGED), inputs)
    for name, tensor in among.items():
        assert torch.equal(tensor[place], alone[name]), name
        assert torch.equal(tensor, again[name]), name


def test_large_scores_do_not_overflow() -> None:
    query, key, value, gradient = make_inputs(RAGGED, RAGGED, dtype=torch.float32)
    inputs = [30 * query, 30 * key, value, gradient]
    actual = outcome(ours(RAGGED, RAGGED), inputs)
    assert all(tensor.isfinite().all() for tensor in actual.values())
    torch.testing.assert_close(
        actual["out"].double(), truth_of(inputs, RAGGED, RAGGED)["out"], rtol=1e-2, atol=1e-3
    )


def test_a_gradient_without_strides_is_read_right() -> None:
    """That of a sum is one number, seen from everywhere."""
    *parts, gradient = make_inputs(RAGGED, RAGGED, dtype=torch.float32)
    inputs = [*parts, gradient.new_tensor(0.5).expand_as(gradient)]
    actual = errors(outcome(ours(RAGGED, RAGGED), inputs), truth_of(inputs, RAGGED, RAGGED))
    assert actual["value"] < EXACT[torch.float32]


def side_by_side(parts: list[Tensor], grouping: str) -> list[Tensor]:
    """Query, key and value in as many tensors as the grouping has words."""
    named = dict(zip("qkv", parts, strict=True))
    return [torch.stack([named[name] for name in word], 1) for word in grouping.split()]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("grouping", "queries", "keys"),
    [
        ("qkv", RAGGED, RAGGED),
        ("q kv", NEEDED, RAGGED),
        ("q kv", RAGGED, RAGGED),
        ("qkv", LONG, LONG),
    ],
)
def test_side_by_side_they_give_the_same_bits(
    grouping: str, queries: list[int], keys: list[int], dtype: torch.dtype
) -> None:
    """One tensor and one gradient of it, against three of each."""
    *parts, gradient = make_inputs(queries, keys, dtype=dtype)
    apart = outcome(ours(queries, keys), [*parts, gradient])
    leaves = [part.requires_grad_() for part in side_by_side(parts, grouping)]
    out = short.short_attention(
        leaves, bounds_of(queries), bounds_of(keys), max(queries), max(keys)
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


@pytest.mark.parametrize("grouping", ["q k v", "q kv", "qkv"])
def test_torch_takes_it_for_an_operator_of_its_own(grouping: str) -> None:
    """Schema, shapes without data, autograd and compiling with a free number of tokens: torch's own
    checks."""
    queries = RAGGED if grouping == "qkv" else NEEDED
    *parts, _ = make_inputs(queries, RAGGED, dtype=torch.float32)
    leaves = [part.requires_grad_() for part in side_by_side(parts, grouping)]
    torch.library.opcheck(
        short._forward, (leaves, bounds_of(queries), bounds_of(RAGGED), max(queries), max(RAGGED))
    )


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("is_needed", [False, True])
def test_it_errs_no_more_than_flash_attention(
    size: int, dtype: torch.dtype, is_needed: bool
) -> None:
    from torch.nn.attention.varlen import varlen_attn

    keys = torch.randint(1, 129, (64,), generator=torch.Generator().manual_seed(1)).tolist()
    queries = [1 + count // 7 for count in keys] if is_needed else keys
    inputs = make_inputs(queries, keys, heads=4, size=size, dtype=dtype)
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
    inputs = make_inputs(LONG, LONG, size=64, dtype=torch.bfloat16)
    bounds = bounds_of(LONG)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = side_by_side([query, key, value], grouping)
        attended = torch.ops.litebert.short_attention(parts, bounds, bounds, 128, 128)
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
