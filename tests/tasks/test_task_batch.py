"""A batch holds its units whole and nothing else; batches hold every unit once with little
padding."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from litebert.tasks.encode.encode import encode
from litebert.tasks.encode.inputs import TaskBatch, epoch_batches
from litebert.text.tokenizer import Tokenizer
from tests.helpers.task_examples import CASES, made_card, made_examples


def listed(batch: TaskBatch) -> dict[str, Any]:
    """The batch as lists, to be compared."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_rows_of_a_batch_are_a_batch_of_fewer_units(
    tokenizer: Tokenizer, kind: Any, head: Any
) -> None:
    inputs = encode(made_card(kind, head), made_examples(kind), tokenizer)
    units = np.random.default_rng(0).permutation(len(inputs))
    batch = inputs.batch(units)
    assert len(batch) == len(units)
    for start, stop in ((0, 3), (3, 4), (5, len(units)), (2, 2)):
        part, told = batch.rows(start, stop), inputs.batch(units[start:stop])
        assert (len(part), part.num_targets, part.num_tokens) == (
            len(told),
            told.num_targets,
            told.num_tokens,
        )
        assert listed(part) == listed(told) or start == stop


def test_padding_is_masked_and_where_there_is_none_there_is_no_mask(tokenizer: Tokenizer) -> None:
    inputs = encode(made_card("pair", max_length=64), made_examples("pair"), tokenizer)
    for unit in range(len(inputs)):
        assert inputs.batch(np.array([unit])).mask is None
    batch = inputs.batch(np.arange(len(inputs)))
    assert batch.mask is not None
    assert batch.mask.sum(1).tolist() == inputs.lengths.tolist()
    assert batch.num_tokens == inputs.lengths.sum() < batch.token_ids.size
    assert (batch.token_ids[~batch.mask] == tokenizer.pad_id).all()
    assert not batch.segment_ids[~batch.mask].any()
    assert batch.token_ids.shape[1] == inputs.lengths.max()


def test_answers_stand_in_the_context_or_at_the_first_token(tokenizer: Tokenizer) -> None:
    inputs = encode(made_card("answer"), made_examples("answer"), tokenizer)
    batch = inputs.batch(np.arange(len(inputs)))
    assert batch.allowed is not None
    special = (batch.token_ids == tokenizer.sep_id) | (batch.token_ids == tokenizer.pad_id)
    assert np.array_equal(batch.allowed[:, 1:], ((batch.segment_ids == 1) & ~special)[:, 1:])
    assert batch.allowed[:, 0].all()


def test_an_epoch_holds_every_unit_once_and_little_padding() -> None:
    lengths = np.random.default_rng(0).integers(1, 64, 1000)
    batches = epoch_batches(lengths, 16, seed=3, epoch=1)
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded < 1.1 * lengths.sum()
    again, other = (
        epoch_batches(lengths, 16, seed=3, epoch=1),
        epoch_batches(lengths, 16, seed=3, epoch=2),
    )
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(batches, other, strict=False))
