"""A batch is [CLS] a [SEP] b [SEP] and padding; its slices, and its padded and packed arrays, hold
the same."""

from collections.abc import Callable

import numpy as np
import pytest

from litebert.data.batch import Batch
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream
from litebert.packing import IGNORED, HostBatch
from tests.helpers.toy_shards import FIRST, toy_shard, vocabulary_of

SHARD = toy_shard()


@pytest.fixture(scope="module")
def batch() -> Batch:
    return Stream([SHARD], vocabulary_of(SHARD), ExampleSpec(max_length=64), split="all").batch(
        0, 0, 40
    )


def originals(batch: Batch) -> np.ndarray:
    token_ids = batch.token_ids.copy()
    token_ids.reshape(-1)[batch.masked_positions] = batch.masked_labels
    return token_ids


def test_layout_of_a_row(batch: Batch) -> None:
    assert batch.token_ids.shape == (40, 64)
    for token_ids, segment_ids, mask in zip(
        originals(batch), batch.segment_ids, batch.mask, strict=True
    ):
        size = int(mask.sum())
        assert mask[:size].all()
        assert (token_ids[size:] == 0).all()
        assert (segment_ids[size:] == 0).all()
        separators = np.flatnonzero(token_ids == 3)
        assert token_ids[0] == 2
        assert len(separators) == 2
        assert separators[1] == size - 1
        assert segment_ids[:size].tolist() == [0] * (separators[0] + 1) + [1] * (
            size - 1 - separators[0]
        )
        for segment in (token_ids[1 : separators[0]], token_ids[separators[0] + 1 : size - 1]):
            assert (np.diff(segment) == 1).all()  # one piece of the text each


def test_the_label_says_which_segment_came_first(batch: Batch) -> None:
    for token_ids, label in zip(originals(batch), batch.order_labels, strict=True):
        middle = int(np.flatnonzero(token_ids == 3)[0])
        assert (token_ids[1] > token_ids[middle + 1]) == bool(label)


def test_nothing_leaks_across_documents(batch: Batch) -> None:
    bounds = SHARD.sentences[SHARD.documents].astype(int)
    for token_ids in originals(batch):
        places = token_ids[token_ids >= FIRST] - FIRST
        assert len(set(np.searchsorted(bounds, places, side="right").tolist())) == 1


def test_slices_are_batches(batch: Batch) -> None:
    parts = [batch.rows(0, 7), batch.rows(7, 8), batch.rows(8, 40)]
    for field in ("token_ids", "segment_ids", "mask", "masked_labels", "order_labels", "indices"):
        assert (
            np.concatenate([getattr(part, field) for part in parts]) == getattr(batch, field)
        ).all()
    assert [len(part) for part in parts] == [7, 1, 32]
    assert sum(part.num_masked for part in parts) == batch.num_masked
    assert sum(part.num_tokens for part in parts) == batch.num_tokens
    for part in parts:
        assert (originals(part).reshape(-1)[part.masked_positions] == part.masked_labels).all()
        assert part.masked_positions.max() < part.token_ids.size


# ---- as arrays for a device

ROWS, SEQ, FRACTION = 6, 12, 0.3
MOST = 4


def drawn_batch(seed: int = 0, rows: int = ROWS, full: bool = False) -> Batch:
    """Rows of different lengths; each masks a share of its tokens, one at least, never [CLS]."""
    draw = np.random.default_rng(seed)
    sizes = np.full(rows, SEQ) if full else draw.integers(3, SEQ, rows, endpoint=True)
    mask = np.arange(SEQ) < sizes[:, None]
    counts = np.maximum(np.round(sizes * FRACTION).astype(int), 1)
    places = [
        row * SEQ + np.sort(1 + draw.permutation(size - 1)[:count])
        for row, (size, count) in enumerate(zip(sizes, counts, strict=True))
    ]
    return Batch(
        token_ids=np.where(mask, draw.integers(5, 50, (rows, SEQ)), 0).astype(np.int32),
        segment_ids=(mask & (np.arange(SEQ) >= 3)).astype(np.uint8),
        mask=mask,
        masked_positions=np.concatenate(places),
        masked_labels=draw.integers(5, 50, sum(map(len, places))).astype(np.int32),
        order_labels=draw.integers(0, 2, rows).astype(np.int32),
        indices=np.arange(rows),
    )


@pytest.mark.parametrize("multiple", [1, 8, 64])
def test_packed_rows_are_the_rows_without_padding(multiple: int) -> None:
    batch = drawn_batch()
    arrays = batch.packed(most_masked=MOST, fraction=FRACTION, multiple=multiple).arrays
    bounds, positions, tokens = arrays["bounds"], arrays["positions"], arrays["token_ids"].shape[1]
    assert tokens % multiple == 0
    assert tokens - batch.num_tokens < multiple
    for row in range(ROWS):
        part = slice(*bounds[row : row + 2].tolist())
        for name in ("token_ids", "segment_ids"):
            assert (arrays[name][0, part] == getattr(batch, name)[row][batch.mask[row]]).all()
        assert positions[0, part].tolist() == list(range(part.stop - part.start))
    assert bounds[-1] == tokens
    assert np.diff(bounds).max() <= SEQ
    assert positions.max() < SEQ


@pytest.mark.parametrize(
    "lay",
    [
        Batch.padded,
        lambda batch: batch.packed(most_masked=MOST, fraction=FRACTION, multiple=8),
    ],
)
def test_needed_tokens_are_each_rows_first_and_the_masked_ones(
    lay: Callable[[Batch], HostBatch],
) -> None:
    batch = drawn_batch()
    arrays = lay(batch).arrays
    tokens = arrays["token_ids"].reshape(-1)[arrays["needed"].reshape(-1)]
    assert tokens[arrays["first"]].tolist() == batch.token_ids[:, 0].tolist()
    real = arrays["masked_labels"] != IGNORED
    assert arrays["masked_labels"][real].tolist() == batch.masked_labels.tolist()
    assert (
        tokens[arrays["masked"][real]].tolist()
        == batch.token_ids.reshape(-1)[batch.masked_positions].tolist()
    )


def test_shapes_do_not_depend_on_what_is_masked_or_how_long_rows_are() -> None:
    batches = [drawn_batch(seed) for seed in range(20)]
    padded = [batch.padded(most_masked=MOST).arrays for batch in batches]
    side_by_side = {
        tuple(array.shape for name, array in arrays.items() if name != "mask") for arrays in padded
    }
    end_to_end = {
        batch.packed(most_masked=MOST, fraction=FRACTION, multiple=256).shapes for batch in batches
    }
    assert len(side_by_side) == len(end_to_end) == 1


def test_a_full_batch_has_no_mask() -> None:
    assert drawn_batch(full=True).padded().is_static
    assert not drawn_batch().padded().is_static


def test_more_masked_tokens_than_allowed_are_refused_not_dropped() -> None:
    with pytest.raises(AssertionError, match="more masked positions than the recipe allows"):
        drawn_batch().padded(most_masked=2)
    with pytest.raises(AssertionError, match="more masked positions than the recipe allows"):
        drawn_batch().packed(most_masked=MOST, fraction=0.0, multiple=1)
