"""Laws of layouts: packed and padded rows hold the same tokens, and their shapes do not depend on
what is in them."""

import numpy as np
import pytest
import torch

from litebert.data.batch import Batch
from litebert.data.layout import IGNORED, packed, padded

ROWS, SEQ, FRACTION = 6, 12, 0.3
MOST = 4


def make_batch(seed: int = 0, rows: int = ROWS, full: bool = False) -> Batch:
    """Rows of different lengths; each hides a share of its tokens, one at least, never [CLS]."""
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
    batch = make_batch()
    tensors = packed(batch, most_masked=MOST, fraction=FRACTION, multiple=multiple).tensors()
    assert tensors.bounds is not None
    assert tensors.positions is not None
    assert tensors.token_ids.shape[1] % multiple == 0
    assert tensors.token_ids.shape[1] - batch.num_tokens < multiple
    for row in range(ROWS):
        start, stop = tensors.bounds[row : row + 2].tolist()
        for name in ("token_ids", "segment_ids"):
            assert (
                getattr(tensors, name)[0, start:stop].numpy()
                == getattr(batch, name)[row][batch.mask[row]]
            ).all()
        assert tensors.positions[0, start:stop].tolist() == list(range(stop - start))
    assert tensors.bounds[-1] == tensors.token_ids.shape[1]
    assert tensors.bounds.diff().max() <= SEQ
    assert tensors.positions.max() < SEQ


@pytest.mark.parametrize(
    "lay", [padded, lambda batch: packed(batch, most_masked=MOST, fraction=FRACTION, multiple=8)]
)
def test_needed_tokens_are_each_rows_first_and_the_masked_ones(lay: object) -> None:
    batch = make_batch()
    tensors = lay(batch).tensors()  # type: ignore[operator]
    tokens = tensors.token_ids.reshape(-1)[tensors.needed.reshape(-1)]
    assert tokens[tensors.first].tolist() == batch.token_ids[:, 0].tolist()
    real = tensors.masked_labels != IGNORED
    assert tensors.masked_labels[real].tolist() == batch.masked_labels.tolist()
    assert (
        tokens[tensors.masked[real]].tolist()
        == batch.token_ids.reshape(-1)[batch.masked_positions].tolist()
    )
    assert len(tensors) == ROWS


def test_shapes_do_not_depend_on_what_is_hidden_or_how_long_rows_are() -> None:
    side_by_side = {padded(make_batch(seed), most_masked=MOST).shapes[:-1] for seed in range(20)}
    end_to_end = {
        packed(make_batch(seed), most_masked=MOST, fraction=FRACTION, multiple=256).shapes
        for seed in range(20)
    }
    assert len(side_by_side) == len(end_to_end) == 1


def test_a_full_batch_has_no_mask() -> None:
    assert padded(make_batch(full=True)).mask is None
    assert padded(make_batch()).mask is not None


def test_more_masked_tokens_than_allowed_are_refused_not_dropped() -> None:
    with pytest.raises(AssertionError, match="more masked positions than the recipe allows"):
        padded(make_batch(), most_masked=2)
    with pytest.raises(AssertionError, match="more masked positions than the recipe allows"):
        packed(make_batch(), most_masked=MOST, fraction=0.0, multiple=1)


def test_all_in_one_piece_and_back() -> None:
    layout = packed(make_batch(), most_masked=MOST, fraction=FRACTION, multiple=8)
    flat = torch.from_numpy(np.concatenate([array.reshape(-1) for array in layout.arrays.values()]))
    whole, apart = layout.split(flat), layout.tensors()
    for name in layout.arrays:
        assert torch.equal(getattr(whole, name), getattr(apart, name))
