"""Laws of the feed: looking ahead changes neither the batches nor where a run stands; the rate
follows the batch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from litebert.config import HeadConfig, ModelConfig
from litebert.data.shards import Shards
from litebert.data.stream import Stream
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.optim.schedule import learning_rate_at
from litebert.packing import IGNORED, PACKED_MULTIPLE, padding_multiple, round_up
from litebert.recipes import FractionStages, PretrainRecipe
from litebert.text.tokenizer import Tokenizer
from litebert.train.pretrain.job import Feed, PretrainJob
from litebert.train.pretrain.run import example_spec
from tests.helpers.pretraining import CPU, staged_recipe


def make_feed(shards: Path, workers: int = 0, recipe: PretrainRecipe | None = None) -> Feed:
    recipe = recipe or staged_recipe()
    return Feed(
        Stream.open(shards, example_spec(recipe), seed=recipe.seed), recipe, CPU, workers=workers
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_looking_ahead_changes_nothing(shards: Path, workers: int) -> None:
    plain, eager = make_feed(shards), make_feed(shards, workers)
    try:
        for step in range(plain.steps):
            expected, found = plain.batch(step), eager.batch(step)
            following = eager.prefetch(step + 1)
            assert (following is None) == (step + 1 == plain.steps)
            assert following is eager.prefetch(step + 1)
            assert eager.last is found
            assert np.array_equal(expected.token_ids, found.token_ids)
            assert (plain.began, plain.position(step + 1)) == (
                eager.began,
                eager.position(step + 1),
            )
    finally:
        eager.close()


def test_what_was_looked_at_is_forgotten_where_the_feed_is_moved(shards: Path) -> None:
    feed = make_feed(shards)
    first, began = feed.batch(0), feed.position(0)
    feed.prefetch(1)
    feed.seek(0, began)
    assert np.array_equal(feed.batch(0).token_ids, first.token_ids)
    expected, feed = feed.batch(1), make_feed(shards)
    feed.batch(0)
    assert np.array_equal(feed.batch(1).token_ids, expected.token_ids)


def test_another_mask_fraction_keeps_the_examples_and_their_order(shards: Path) -> None:
    """The stage from step 8 masks less of the same rows; the others mask the same tokens."""
    recipe = staged_recipe()
    constant = replace(recipe, mask_fraction=FractionStages.constant(0.4))
    staged, plain = make_feed(shards), make_feed(shards, recipe=constant)
    for step in range(recipe.total_steps):
        mine, theirs = staged.batch(step), plain.batch(step)
        assert np.array_equal(mine.indices, theirs.indices)
        assert staged.position(step + 1) == plain.position(step + 1)
        assert np.array_equal(mine.token_ids, theirs.token_ids) == (step < 8)
        assert mine.mask_fraction == (0.4 if step < 8 else 0.15)
        if step >= 8:
            assert mine.num_masked < 0.6 * theirs.num_masked


@pytest.mark.parametrize("fraction", [0.15, 0.5, 0.9])
@pytest.mark.parametrize("max_masked", [None, 3])
def test_every_fraction_has_room_in_both_layouts(
    shards: Path, fraction: float, max_masked: int | None
) -> None:
    recipe = replace(
        staged_recipe(), mask_fraction=FractionStages.constant(fraction), max_masked=max_masked
    )
    job = PretrainJob(recipe, make_feed(shards, recipe=recipe), CPU, static_shapes=True)
    for step in range(job.steps):
        batch = job.batch(step)
        for job.pack in (False, True):
            arrays = job.layout(batch).arrays
            labels = arrays["masked_labels"]
            assert labels[labels != IGNORED].tolist() == batch.masked_labels.tolist()


@pytest.mark.parametrize(
    ("stated", "factors"),
    [(None, (1.0, 1.0)), (6, (1.0, (8 / 6) ** 0.5)), (24, (0.5, (8 / 24) ** 0.5))],
)
def test_the_rate_follows_the_batch_by_its_root(
    shards: Path, stated: int | None, factors: tuple[float, float]
) -> None:
    """The staged recipe begins with 6 sequences and continues with 8."""
    recipe = replace(staged_recipe(), reference_batch_size=stated)
    job = PretrainJob(recipe, make_feed(shards), CPU)
    plain = [learning_rate_at(recipe.optimizer, step, job.steps) for step in range(job.steps)]
    sizes = [job.feed.at(step)[1] for step in range(job.steps)]
    assert set(sizes) == {6, 8}
    expected = [rate * factors[size == 8] for rate, size in zip(plain, sizes, strict=True)]
    assert [job.learning_rate(step) for step in range(job.steps)] == pytest.approx(expected)


@pytest.mark.parametrize("tokens", [48, 10_000])
def test_the_first_microbatch_of_the_next_step_is_there_before_it(
    shards: Path, tokens: int
) -> None:
    """The very object that the loop cuts off later, so that its layout need not be made again."""
    job = PretrainJob(replace(staged_recipe(), microbatch_tokens=tokens), make_feed(shards), CPU)
    for step in range(job.steps - 1):
        job.batch(step)
        first, batch = job.prefetch(step + 1), job.feed.prefetch(step + 1)
        assert first is batch.rows(0, job.microbatch_rows(step + 1))
        assert (first is batch) == (tokens == 10_000)
    assert job.prefetch(job.steps) is None


def test_no_layout_is_larger_than_that_of_the_largest(shards: Path) -> None:
    """Packed rows of a microbatch, and the same rows without padding: of each array no less, and as
    many rows."""
    job = PretrainJob(staged_recipe(), make_feed(shards), CPU)
    assert job.largest(job.batch(0)) is None
    job.pack = True
    for step in range(job.steps):
        batch = job.batch(step)
        found, most = job.layout(batch), job.layout(job.largest(batch))
        assert len(batch) == len(job.largest(batch))
        rows, seq = batch.token_ids.shape
        assert most.arrays["token_ids"].shape == (1, round_up(rows * seq, PACKED_MULTIPLE))
        assert all(
            array.size <= most.arrays[name].size
            for name, array in found.arrays.items()
            if "bounds" not in name
        )


def test_the_largest_can_be_computed(shards: Path) -> None:
    """Whatever stands where padding was: a pass over it makes room, and nobody reads what it
    gives."""
    recipe = staged_recipe()
    job = PretrainJob(recipe, make_feed(shards), CPU)
    job.pack = True
    vocab_size = Tokenizer.load(Shards.open(shards).tokenizer_folder).vocab_size
    heads = HeadConfig(kind="masked"), HeadConfig(kind="order")
    model = Model(ModelConfig(encoder=replace(recipe.encoder, vocab_size=vocab_size), heads=heads))
    losses = job.compute(model, DeviceBatch.of(job.layout(job.largest(job.batch(0)))), None)
    assert all(number.isfinite() for number in losses.numbers().values())


def test_wide_states_are_filled_up_less() -> None:
    assert {size: padding_multiple(size) for size in (64, 768, 1024, 2048, 4096)} == {
        64: 1024,
        768: 1024,
        1024: 512,
        2048: 256,
        4096: 256,
    }
