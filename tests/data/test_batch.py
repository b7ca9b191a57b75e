"""A batch is [CLS] a [SEP] b [SEP] and padding; its slices and tensors say the same."""

import numpy as np
import pytest
from toy_corpus import FIRST, toy_shard, vocabulary_of

from litebert.data.batch import Batch, padded_width
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream

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


@pytest.mark.parametrize(
    ("longest", "multiple", "width"),
    [(9, None, 64), (9, 8, 16), (16, 8, 16), (63, 48, 64), (5, 1, 5)],
)
def test_width(longest: int, multiple: int | None, width: int) -> None:
    assert padded_width(longest, max_length=64, pad_multiple=multiple) == width


def test_padding_to_a_multiple_changes_the_width_alone() -> None:
    wide, narrow = (
        Stream(
            [SHARD],
            vocabulary_of(SHARD),
            ExampleSpec(max_length=512),
            split="all",
            pad_multiple=multiple,
        ).batch(0, 0, 3)
        for multiple in (None, 8)
    )
    width = narrow.token_ids.shape[1]
    assert width % 8 == 0
    assert width < 512
    assert (wide.token_ids[:, :width] == narrow.token_ids).all()
    assert not wide.mask[:, width:].any()
    assert not narrow.is_full
    assert wide.num_tokens == narrow.num_tokens
