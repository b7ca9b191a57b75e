"""Both attention kernels with rotary positions err no more than rotation and attention written out,
forward and backward; the truth is float64."""

import functools

import pytest
import torch
from torch import Tensor

from litebert.config import EncoderConfig
from litebert.kernels.attention import long, short
from litebert.kernels.attention.rotary import Rotary, rotated_copy
from litebert.model.positions import Rotation
from tests.helpers.kernels import (  # skips all of this where kernels cannot run
    DEVICE,
    HALF,
    HAS_GPU,
)
from tests.kernels import test_attention_dropout as dropout
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

SHORT, SHORT_NEEDED = [5, 16, 0, 1, 31, 17], [2, 3, 0, 1, 9, 0]
LONGER, LONGER_NEEDED = [5, 0, 200, 1, 131], [2, 0, 70, 1, 0]
FULL, FULL_NEEDED = [128, 64, 1], [19, 3, 1]
CASES = {
    "short": ("short", SHORT, SHORT),
    "short, needed": ("short", SHORT_NEEDED, SHORT),
    "full": ("short", FULL, FULL),
    "full, needed": ("short", FULL_NEEDED, FULL),
    "long": ("long", LONGER, LONGER),
    "long, needed": ("long", LONGER_NEEDED, LONGER),
}
KERNELS = {"short": short.short_attention, "long": long.long_attention}


def positions_of(queries: list[int], keys: list[int]) -> tuple[Tensor, Tensor | None]:
    """Of every key; and of the queries where they are needed ones: spread, out of order."""
    of_keys = torch.cat([torch.arange(count) for count in keys]).to(DEVICE)
    if queries == keys:
        return of_keys, None
    draw = torch.Generator().manual_seed(4)
    rows = zip(queries, keys, strict=True)
    of_queries = [torch.randperm(count, generator=draw)[:some] for some, count in rows]
    return of_keys, torch.cat(of_queries).to(DEVICE)


def rotation(size: int, positions: Tensor, dtype: torch.dtype) -> Rotation:
    config = EncoderConfig(
        hidden_size=size, num_attention_heads=1, positions="rotary", rotary_base=300.0
    )
    states = torch.zeros(1, len(positions), size, dtype=dtype, device=DEVICE)
    return Rotation.of(config, states, positions[None])


def rotate(queries: list[int], keys: list[int], query: Tensor, key: Tensor) -> list[Tensor]:
    of_keys, of_queries = positions_of(queries, keys)
    of_queries = of_keys if of_queries is None else of_queries
    return [
        rotation(heads.shape[-1], positions, heads.dtype).apply(heads[None])[0]
        for heads, positions in ((query, of_queries), (key, of_keys))
    ]


def written_out(queries: list[int], keys: list[int], query: Tensor, key: Tensor, value: Tensor):
    return reference(*rotate(queries, keys, query, key), value, queries, keys)


def rotary(queries: list[int], keys: list[int], size: int) -> Rotary:
    of_keys, of_queries = positions_of(queries, keys)
    tables = rotation(size, of_keys, torch.float32)
    return Rotary(tables.cos, tables.sin, of_keys, of_queries)


def ours(kernel: str, queries: list[int], keys: list[int], size: int) -> object:
    bounds = bounds_of(queries), bounds_of(keys)
    tables = rotary(queries, keys, size)
    return lambda *parts: KERNELS[kernel](
        [part[:, None] for part in parts], *bounds, max(queries), max(keys), rotary=tables
    )


def assert_errs_no_more(kernel: str, queries: list[int], keys: list[int], size: int) -> None:
    inputs = make_inputs(queries, keys, heads=2, size=size, dtype=HALF)
    plain = functools.partial(written_out, queries, keys)
    truth = outcome(plain, [part.double() for part in inputs])
    theirs = errors(outcome(plain, inputs), truth)
    mine = errors(outcome(ours(kernel, queries, keys, size), inputs), truth)
    assert all(mine[name] <= 1.1 * theirs[name] for name in mine), (mine, theirs)
    unrotated = errors(truth_of(inputs, queries, keys), truth)
    assert unrotated["out"] > 10 * mine["out"]


@pytest.mark.parametrize(
    ("case", "size"),
    [
        *((case, 64) for case in CASES),
        *((case, size) for case in ("full, needed", "long, needed") for size in (32, 128)),
    ],
)
def test_it_errs_no_more_than_rotation_and_attention_written_out(case: str, size: int) -> None:
    assert_errs_no_more(*CASES[case], size)


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_descriptors_do_not_matter(has_descriptors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "DESCRIPTORS", has_descriptors)
    assert_errs_no_more(*CASES["long, needed"], 64)


@pytest.mark.parametrize("case", ["short", "long"])
def test_a_row_does_not_see_the_others(case: str) -> None:
    """The same row alone and among others, to the bit: positions begin anew in each row."""
    kernel, queries, keys = CASES[case]
    row = max(range(len(keys)), key=keys.__getitem__)
    inputs = make_inputs(queries, keys, size=32, dtype=HALF)
    among = outcome(ours(kernel, queries, keys, 32), inputs)
    place = slice(sum(keys[:row]), sum(keys[: row + 1]))
    alone = outcome(
        ours(kernel, [keys[row]], [keys[row]], 32), [part[place].clone() for part in inputs]
    )
    for name, tensor in among.items():
        assert torch.equal(tensor[place], alone[name]), name


@pytest.mark.parametrize("case", ["short", "long"])
def test_without_gradients_the_bits_are_the_same(case: str) -> None:
    kernel, queries, keys = CASES[case]
    inputs = make_inputs(queries, keys, size=64, dtype=HALF)
    attend = ours(kernel, queries, keys, 64)
    with torch.no_grad():
        predicted = attend(*inputs[:3])  # type: ignore[operator]
    assert torch.equal(predicted, outcome(attend, inputs)["out"])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("grouping", "queries"), [("qkv", SHORT), ("q kv", SHORT_NEEDED), ("q kv", SHORT)]
)
def test_side_by_side_they_give_the_same_bits(
    kernel: str, grouping: str, queries: list[int]
) -> None:
    """One tensor and one gradient of it, against three of each."""
    *parts, gradient = make_inputs(queries, SHORT, size=32, dtype=HALF)
    apart = outcome(ours(kernel, queries, SHORT, 32), [*parts, gradient])
    leaves = [part.requires_grad_() for part in side_by_side(parts, grouping)]
    bounds = bounds_of(queries), bounds_of(SHORT)
    tables = rotary(queries, SHORT, 32)
    out = KERNELS[kernel](leaves, *bounds, max(queries), max(SHORT), rotary=tables)
    together = torch.autograd.grad(out, leaves, gradient)
    assert all(each.is_contiguous() for each in together)
    assert torch.equal(out, apart["out"])
    sides = [side for part in together for side in part.unbind(1)]
    for side, name in zip(sides, ["query", "key", "value"], strict=True):
        assert torch.equal(side, apart[name]), name


@pytest.mark.parametrize("needed", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_torch_takes_it_for_an_operator_of_its_own(
    kernel: str, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schema, shapes without data, autograd and compiling with a free number of tokens: torch's own
    checks."""
    empty = long._notes_like
    monkeypatch.setattr(
        long, "_notes_like", lambda *args: torch.zeros_like(empty(*args))
    )  # nobody writes between rows
    queries = SHORT_NEEDED if needed else SHORT
    *parts, _ = make_inputs(queries, SHORT, heads=1, size=32, dtype=HALF)
    leaves = [part.requires_grad_() for part in side_by_side(parts, "q kv" if needed else "qkv")]
    bounds = bounds_of(queries), bounds_of(SHORT), max(queries), max(SHORT)
    tables = rotary(queries, SHORT, 32)
    if kernel == "short":
        of_queries = tables.cos, tables.sin, tables.query_positions
        torch.library.opcheck(short._rotary_forward, (leaves, *of_queries, *bounds, True))
    else:
        torch.library.opcheck(long._rotary_forward, (leaves, *tables, *bounds, None, 0.0))


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize(
    ("queries", "keys"), [([90, 5, 0, 1], [90, 5, 0, 1]), ([70, 2, 0, 0], [90, 5, 0, 1])]
)
def test_dropped_weights_are_the_same_backward(
    queries: list[int], keys: list[int], seed: int
) -> None:
    """Attention without rotation drops the same weights, and shows which."""
    inputs = make_inputs(queries, keys, heads=1, size=dropout.SIZE, dtype=HALF)
    stay = [weights != 0 for weights in dropout.weights_of(inputs[:3], queries, keys, seed)]
    bounds, tables = (bounds_of(queries), bounds_of(keys)), rotary(queries, keys, dropout.SIZE)

    def attend(*parts: Tensor) -> Tensor:
        return long.long_attention(
            [part[:, None] for part in parts],
            *(*bounds, max(queries), max(keys)),
            *(torch.tensor(seed, device=DEVICE), dropout.DROPOUT),
            rotary=tables,
        )

    def plain(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        rotated = rotate(queries, keys, query, key)
        return dropout.reference((*rotated, value), stay, queries, keys)

    truth = outcome(plain, [part.double() for part in inputs])
    theirs, mine = errors(outcome(plain, inputs), truth), errors(outcome(attend, inputs), truth)
    assert all(mine[name] <= 1.1 * theirs[name] for name in mine), (mine, theirs)


def test_a_copy_is_the_plain_rotation() -> None:
    query, *_ = make_inputs(LONGER, LONGER, heads=3, size=64, dtype=torch.float32)
    of_keys, _ = positions_of(LONGER, LONGER)
    tables = rotation(64, of_keys, torch.float32)
    copied = rotated_copy(query, tables.cos, tables.sin, of_keys)
    torch.testing.assert_close(copied, tables.apply(query[None])[0], rtol=1e-6, atol=1e-6)


@needs_gpu
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.filterwarnings("ignore")  # of compilers
def test_it_is_compiled_and_replayed(kernel: str) -> None:
    """Compiled with a free number of tokens, and as a CUDA graph: the same bits."""
    keys = FULL if kernel == "short" else LONGER
    inputs = make_inputs(keys, keys, size=64, dtype=HALF)
    attend = ours(kernel, keys, keys, 64)
    plain = outcome(attend, inputs)
    compiled = outcome(torch.compile(attend, dynamic=True, fullgraph=True), inputs)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        recorded = outcome(attend, inputs)
    graph.replay()
    torch.cuda.synchronize()
    for name, tensor in plain.items():
        assert torch.equal(tensor, compiled[name]), name
        assert torch.equal(tensor, recorded[name]), name


@pytest.mark.skipif(HAS_GPU, reason="the same there")
def test_rows_without_rotation_pass_no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a kernel is compiled as if there were no rotation."""
    seen: list[object] = []
    run = short._run_backward
    monkeypatch.setattr(short, "_run_backward", lambda *args: seen.append(args[9:]) or run(*args))
    inputs = make_inputs(SHORT, SHORT, size=32, dtype=HALF)
    bounds = bounds_of(SHORT), bounds_of(SHORT)
    outcome(
        lambda *parts: short.short_attention([part[:, None] for part in parts], *bounds, 31, 31),
        inputs,
    )
    assert seen == [()]
