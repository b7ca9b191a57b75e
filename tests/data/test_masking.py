"""Laws of n-gram masking, and equality in distribution with a plain builder in the reference's
manner."""

import random

import numpy as np
import pytest

from bench.common import python_builder as builder
from litebert.data.masking import (
    MaskedRows,
    Rows,
    Vocabulary,
    mask_rows,
)
from litebert.data.random import Purpose, keys, seeded
from litebert.data.spec import ExampleSpec
from litebert.errors import ConfigError
from tests.helpers.toy_shards import FIRST, toy_vocabulary

VOCABULARY = toy_vocabulary(3000)
NAMES = [f"token{number}" for number in range(3000)]


def make_rows(
    num: int,
    max_length: int,
    *,
    vocabulary: Vocabulary = VOCABULARY,
    ragged: bool = False,
    seed: int = 0,
) -> Rows:
    rng = np.random.default_rng(seed)
    text = np.full(num, max_length - 3) if not ragged else rng.integers(2, max_length - 2, num)
    a_sizes = 1 + (rng.random(num) * (text - 1)).astype(np.int64)
    b_sizes = text - a_sizes
    token_ids = np.full((num, max_length), vocabulary.pad_id, np.int32)
    for row, (a, b) in enumerate(zip(a_sizes, b_sizes, strict=True)):
        words = rng.integers(FIRST, len(vocabulary.word_starts), a + b)
        pieces = [
            [vocabulary.cls_id],
            words[:a],
            [vocabulary.sep_id],
            words[a:],
            [vocabulary.sep_id],
        ]
        token_ids[row, : a + b + 3] = np.concatenate(pieces)
    return Rows(token_ids, a_sizes, b_sizes)


def row_keys(num: int, epoch: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return keys(seeded(0, Purpose.CHOOSE, epoch), np.arange(num)), keys(
        seeded(0, Purpose.REPLACE, epoch), np.arange(num)
    )


def masked(spec: ExampleSpec, rows: Rows, vocabulary: Vocabulary = VOCABULARY) -> MaskedRows:
    copy = rows._replace(token_ids=rows.token_ids.copy())
    return mask_rows(spec, vocabulary, copy, *row_keys(len(rows.a_sizes)))


def words_of(rows: Rows, row: int, vocabulary: Vocabulary = VOCABULARY) -> list[list[int]]:
    """Columns of each word of a row, found the slow way; None marks a segment's end."""
    words: list[list[int]] = []
    a, b = int(rows.a_sizes[row]), int(rows.b_sizes[row])
    for first, size in ((1, a), (a + 2, b)):
        for column in range(first, first + size):
            if column == first or vocabulary.word_starts[rows.token_ids[row, column]]:
                words.append([])
            words[-1].append(column)
    return words


@pytest.mark.parametrize("max_length", [8, 64, 200])
def test_words_are_masked_whole_and_special_tokens_never(max_length: int) -> None:
    rows = make_rows(200, max_length, ragged=True)
    hidden = masked(ExampleSpec(max_length=max_length), rows)
    chosen = np.zeros(rows.token_ids.size, bool)
    chosen[hidden.masked_positions] = True
    chosen = chosen.reshape(rows.token_ids.shape)
    for row in range(200):
        words = words_of(rows, row)
        inside = {column for word in words for column in word}
        assert set(np.flatnonzero(chosen[row]).tolist()) <= inside
        for word in words:
            assert len(set(chosen[row, word].tolist())) == 1
    assert (np.diff(hidden.masked_positions) > 0).all()
    assert (rows.token_ids.reshape(-1)[hidden.masked_positions] == hidden.masked_labels).all()
    untouched = ~chosen
    assert (hidden.token_ids[untouched] == rows.token_ids[untouched]).all()


@pytest.mark.parametrize(
    ("max_length", "fraction"), [(512, 0.15), (128, 0.15), (512, 0.4), (100, 0.15)]
)
def test_fifteen_percent_are_hidden(max_length: int, fraction: float) -> None:
    spec = ExampleSpec(max_length=max_length, mask_fraction=fraction)
    rows = make_rows(300, max_length)
    share = len(masked(spec, rows).masked_labels) / rows.sizes.sum()
    assert abs(share - fraction) < 0.002


def test_budgets_follow_the_references_rounding() -> None:
    sizes = np.arange(4, 513)
    assert ExampleSpec().num_to_mask(sizes).tolist() == [
        max(1, round(int(size) * 0.15)) for size in sizes
    ]
    assert ExampleSpec(max_masked=20).num_to_mask(sizes).max() == 20
    rows = make_rows(100, 256, ragged=True)
    for spec in (
        ExampleSpec(),
        ExampleSpec(max_masked=20),
        ExampleSpec(mask_fraction=0.3, max_ngram=5),
    ):
        counts = np.bincount(masked(spec, rows).masked_positions // 256, minlength=100)
        assert (counts <= spec.num_to_mask(rows.sizes)).all()
        assert counts.sum() > 0.97 * spec.num_to_mask(rows.sizes).sum()


@pytest.mark.parametrize(
    ("max_ngram", "expected"),
    [
        (1, {1: 1}),
        (2, {1: 1 / 3, 2: 2 / 3}),
        # three at once; two and one, or one and then what is left; three single ones
        (3, {1: 2 / 11, 2: 3 / 11 + 6 / 11 * 5 / 11, 3: 6 / 11 * 6 / 11}),
    ],
)
def test_lengths_are_drawn_in_proportion_to_their_inverse(
    max_ngram: int, expected: dict[int, float]
) -> None:
    """6/11, 3/11, 2/11: seen in how many runs hide a budget of max_ngram one-token words, far from
    each other."""
    vocabulary = toy_vocabulary(100, word_share=1.1)
    rows = make_rows(4000, 500, vocabulary=vocabulary)
    hidden = masked(
        ExampleSpec(max_length=500, max_ngram=max_ngram, max_masked=max_ngram), rows, vocabulary
    )
    positions = hidden.masked_positions.reshape(4000, max_ngram)
    runs = 1 + (np.diff(positions, axis=1) > 1).sum(axis=1)
    for count, share in expected.items():
        # neighbors by chance, and runs that a segment's end or another run cut short: below 2 in
        # 100
        assert abs((runs == count).mean() - share) < 5 * np.sqrt(share * (1 - share) / 4000) + 0.02


def test_ngrams_end_with_their_segment() -> None:
    """Three one-token words left and right of [SEP]: no run crosses it, though runs of three are
    asked for."""
    vocabulary = toy_vocabulary(100, word_share=1.1)
    rows = make_rows(400, 9, vocabulary=vocabulary)._replace(
        a_sizes=np.full(400, 3), b_sizes=np.full(400, 3)
    )
    rows.token_ids[:, 4] = vocabulary.sep_id
    spec = ExampleSpec(max_length=9, mask_fraction=0.33)
    positions = masked(spec, rows, vocabulary).masked_positions
    columns = positions % 9
    assert set(columns.tolist()) == {1, 2, 3, 5, 6, 7}


def test_eighty_ten_ten() -> None:
    rows = make_rows(1000, 128)
    hidden = masked(ExampleSpec(max_length=128), rows)
    now = hidden.token_ids.reshape(-1)[hidden.masked_positions]
    count = len(now)
    is_mask, is_kept = now == VOCABULARY.mask_id, now == hidden.masked_labels
    for share, expected in ((is_mask.mean(), 0.8), (is_kept.mean(), 0.1 + 0.1 / 2995)):
        assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / count)
    replaced = now[~is_mask & ~is_kept]
    assert replaced.min() >= FIRST
    assert np.bincount(replaced // 300, minlength=10).min() > 0.5 * len(replaced) / 10
    # for each token by itself: neighbors in one n-gram differ as often as chance has it
    neighbors = np.flatnonzero(np.diff(hidden.masked_positions) == 1)
    both = (is_mask[neighbors] & is_mask[neighbors + 1]).mean()
    assert abs(both - 0.64) < 5 * 0.5 / np.sqrt(len(neighbors))


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.5, 0.2), (0.0, 1.0), (0.0, 0.0)])
def test_shares_are_the_specs(shares: tuple[float, float]) -> None:
    """Of [MASK] and of random tokens, within five standard deviations; the rest stays. The same
    positions are masked whatever the shares."""
    rows = make_rows(1000, 128)
    hidden = masked(ExampleSpec(max_length=128, mask_share=shares[0], random_share=shares[1]), rows)
    usual = masked(ExampleSpec(max_length=128), rows)
    assert (hidden.masked_positions == usual.masked_positions).all()
    now = hidden.token_ids.reshape(-1)[hidden.masked_positions]
    is_mask, is_kept = now == VOCABULARY.mask_id, now == hidden.masked_labels
    for is_it, share in ((is_mask, shares[0]), (~is_mask & ~is_kept, shares[1] * 2994 / 2995)):
        assert abs(is_it.mean() - share) <= 5 * np.sqrt(share * (1 - share) / len(now))


def test_shares_beyond_everything_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"at most 1 together; got 0\.8 and 0\.3"):
        ExampleSpec(random_share=0.3)
    with pytest.raises(ConfigError, match="mask_share is a number from 0 to 1; got 2"):
        ExampleSpec(mask_share=2)


def test_random_specials_may_be_let_in() -> None:
    everything = VOCABULARY._replace(replacements=np.arange(FIRST))
    rows = make_rows(300, 64)
    now = masked(ExampleSpec(max_length=64), rows, everything)
    replaced = now.token_ids.reshape(-1)[now.masked_positions]
    assert set(replaced[replaced < FIRST].tolist()) == set(range(FIRST))


def test_a_rows_mask_is_its_own_affair() -> None:
    """Whatever stands beside it, however many rows there are, in whatever order."""
    rows = make_rows(64, 96, ragged=True)
    spec = ExampleSpec(max_length=96)
    full = masked(spec, rows)
    choose_keys, replace_keys = row_keys(64)
    for picked in (np.array([5]), np.array([63, 0, 17]), np.arange(64)[::-1]):
        part = Rows(rows.token_ids[picked], rows.a_sizes[picked], rows.b_sizes[picked])
        actual = mask_rows(spec, VOCABULARY, part, choose_keys[picked], replace_keys[picked])
        assert (actual.token_ids == full.token_ids[picked]).all()


def test_one_segment_and_one_token_rows() -> None:
    rows = Rows(
        np.array([[2, 9, 3, 0, 0, 0], [2, 9, 3, 8, 3, 0]], np.int32),
        np.array([1, 1]),
        np.array([0, 1]),
    )
    hidden = masked(ExampleSpec(max_length=6), rows)
    assert hidden.masked_positions[0] == 1
    assert hidden.masked_positions[1] in (7, 9)
    assert len(hidden.masked_positions) == 2


def test_equal_in_distribution_to_the_plain_python_way() -> None:
    """How often each place is hidden, how many words runs have, and how tokens are replaced."""
    # every word one token, so that a run of hidden tokens is a run of words
    vocabulary = toy_vocabulary(3000, word_share=1.1)
    rows = make_rows(2000, 64, vocabulary=vocabulary)
    rows = rows._replace(a_sizes=np.full(2000, 30), b_sizes=np.full(2000, 31))
    rows.token_ids[:] = np.where(rows.token_ids == vocabulary.sep_id, FIRST, rows.token_ids)
    rows.token_ids[:, [31, 63]] = vocabulary.sep_id
    hidden = masked(ExampleSpec(max_length=64), rows, vocabulary)
    ours = np.zeros(rows.token_ids.shape, bool)
    ours.reshape(-1)[hidden.masked_positions] = True

    rng, theirs, replaced = random.Random(0), np.zeros_like(ours), []
    settings = builder.Settings(max_length=64)
    for row in range(2000):
        tokens = [builder.CLS, *["word"] * 30, builder.SEP, *["word"] * 31, builder.SEP]
        output, positions, _, _ = builder.mask(tokens, settings, {"word": True}, ["other"], rng)
        theirs[row, positions] = True
        replaced.extend(output[position] for position in positions)
    assert ours.sum() == theirs.sum()
    inner = np.r_[
        3:29, 35:60
    ]  # away from the ends, where the reference's runs go on into the other segment
    assert abs(ours[:, inner].mean() - theirs[:, inner].mean()) < 0.006
    for span in (2, 3, 4, 5):
        together = [
            np.stack([flags[:, inner[0] + k : 29 + k - span] for k in range(span)]).all(0).mean()
            for flags in (ours, theirs)
        ]
        assert abs(together[0] - together[1]) < 0.006, span
    now = hidden.token_ids.reshape(-1)[hidden.masked_positions]
    assert (
        abs(
            (now == vocabulary.mask_id).mean()
            - np.mean([token == builder.MASK for token in replaced])
        )
        < 0.015
    )
