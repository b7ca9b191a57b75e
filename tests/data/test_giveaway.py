"""Lengths, the place of [SEP] and cut sentences do not tell the order; the plain way of cutting
lets them."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from litebert.data.giveaway import NAMES, accuracy, expand, features, fit
from litebert.data.plan import is_heldout
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream
from tests.helpers.toy_shards import toy_shard, vocabulary_of

# the first sentence of each document is longer than the others, as in an encyclopedia
SHARD = toy_shard(documents=6000, sentences=(2, 40))


def stream(**settings) -> Stream:
    return Stream([SHARD], vocabulary_of(SHARD), ExampleSpec(**settings), split="all")


@pytest.mark.parametrize("max_length", [64, 128, 512])
def test_the_order_is_not_given_away(max_length: int) -> None:
    """Within a point of chance, plus three deviations of the measurement itself."""
    inputs, labels, documents = features(stream(max_length=max_length))
    unseen = is_heldout(documents, 1 / 3)
    bound = 0.51 + 3 * 0.5 / np.sqrt(unseen.sum())
    assert accuracy(stream(max_length=max_length)) < bound
    for model in (
        LogisticRegression(),
        HistGradientBoostingClassifier(max_iter=50, min_samples_leaf=100),
    ):
        assert (
            model.fit(inputs[~unseen], labels[~unseen]).score(inputs[unseen], labels[unseen])
            < bound
        )


@pytest.mark.parametrize("max_length", [64, 512])
def test_cutting_only_the_last_sentence_gives_it_away(max_length: int) -> None:
    assert accuracy(stream(max_length=max_length, cutting="last", short_probability=0)) > 0.56


def test_features_are_what_their_names_say() -> None:
    plain = stream(max_length=64, cutting="last", order="none")
    inputs, labels, _ = features(plain, limit=500)
    column = dict(zip(NAMES, inputs.T, strict=True))
    assert not labels.any()
    assert column["a_begins"].all()
    assert (column["b_begins"] == column["a_ends"])[column["b_size"] > 0].all()
    full = column["a_size"] + column["b_size"] > 0.999
    assert column["b_ends"][full].mean() < 0.3
    assert np.allclose(column["sep_place"] * 61, column["a_size"] * 61 + 1)


def test_the_small_regression_finds_what_there_is() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.random((4000, 3))
    labels = (inputs[:, 0] * inputs[:, 1] > 0.25).astype(np.int64)  # shows in the product alone
    assert np.mean((expand(inputs) @ fit(inputs, labels) > 0) == labels) > 0.97
