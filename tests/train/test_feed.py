"""Laws of the feed: looking ahead changes neither the batches nor where a run stands, across stages and epochs."""

from pathlib import Path

import numpy as np
import pytest

from litebert.data.stream import Stream
from litebert.train.feed import Feed
from litebert.train.pretrain import example_spec

from .runs import CPU, staged_recipe


def make_feed(shards: Path, workers: int = 0) -> Feed:
    recipe = staged_recipe()
    return Feed(Stream.open(shards, example_spec(recipe), seed=recipe.seed), recipe, CPU, workers=workers)


@pytest.mark.parametrize("workers", [0, 1])
def test_looking_ahead_changes_nothing(shards: Path, workers: int) -> None:
    plain, eager = make_feed(shards), make_feed(shards, workers)
    try:
        for step in range(plain.steps):
            expected, found = plain.batch(step), eager.batch(step)
            following = eager.ahead(step + 1)
            assert (following is None) == (step + 1 == plain.steps)
            assert following is eager.ahead(step + 1)
            assert eager.last is found
            assert np.array_equal(expected.token_ids, found.token_ids)
            assert (plain.began, plain.position(step + 1)) == (eager.began, eager.position(step + 1))
    finally:
        eager.close()


def test_what_was_looked_at_is_forgotten_where_the_feed_is_moved(shards: Path) -> None:
    feed = make_feed(shards)
    first, began = feed.batch(0), feed.position(0)
    feed.ahead(1)
    feed.seek(0, began)
    assert np.array_equal(feed.batch(0).token_ids, first.token_ids)
    expected, feed = feed.batch(1), make_feed(shards)
    feed.batch(0)
    assert np.array_equal(feed.batch(1).token_ids, expected.token_ids)
