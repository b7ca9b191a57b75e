"""Examples keep to their documents, lengths follow their law, and nothing but the text's own
structure decides."""

import numpy as np
import pytest

from litebert.data import plan as plan_module
from litebert.data.pairs import cut_everywhere
from litebert.data.plan import Plan, Segments, cut_keys, draw_sizes, is_heldout, plan_epoch
from litebert.data.spec import ExampleSpec
from litebert.data.texts import Texts
from tests.helpers.toy_shards import shard_of, toy_shard

SHARD = toy_shard(documents=400)


def planned(
    spec: ExampleSpec, *shards, seed: int = 0, epoch: int = 0, split="all"
) -> tuple[Texts, Plan, Segments]:
    texts = Texts(shards or [SHARD], spec.max_text)
    plan = plan_epoch(texts, spec, seed=seed, epoch=epoch, split=split)
    return texts, plan, cut_everywhere(texts, spec, plan, np.arange(len(plan)), seed=seed)


def is_edge(texts: Texts, places: np.ndarray) -> np.ndarray:
    return np.isin(places, texts.shards[0].sentences)


@pytest.mark.parametrize("max_length", [16, 64, 128, 512])
def test_segments_stay_in_their_document_in_order_and_apart(max_length: int) -> None:
    spec = ExampleSpec(max_length=max_length)
    texts, plan, found = planned(spec)
    assert (found.a_start >= plan.starts).all()
    assert (found.a_start + found.a_size <= found.b_start).all()
    assert (found.b_start + found.b_size <= plan.starts + plan.rooms).all()
    assert (np.minimum(found.a_size, found.b_size) >= 1).all()
    assert (found.a_size + found.b_size <= spec.max_text).all()
    own = texts.documents_of(plan.starts)
    for place in (found.a_start, found.b_start, found.b_start + found.b_size - 1):
        assert (texts.documents_of(place) == own).all()


def test_no_token_is_read_twice_in_an_epoch() -> None:
    texts, _, found = planned(ExampleSpec(max_length=64))
    seen = np.zeros(texts.num_tokens, int)
    for start, size in ((found.a_start, found.a_size), (found.b_start, found.b_size)):
        for first, count in zip(start, size, strict=True):
            seen[first : first + count] += 1
    assert seen.max() == 1


def test_epochs_together_read_everything_that_has_a_neighbor() -> None:
    """What one epoch cuts off another reads: only documents of one sentence stay unread."""
    spec = ExampleSpec(max_length=64)
    seen = np.zeros(len(SHARD.tokens), bool)
    for epoch in range(40):
        _, _, found = planned(spec, epoch=epoch)
        for start, size in ((found.a_start, found.a_size), (found.b_start, found.b_size)):
            for first, count in zip(start, size, strict=True):
                seen[first : first + count] = True
    bounds = SHARD.sentences[SHARD.documents].astype(int)
    several = np.repeat(np.diff(SHARD.documents.astype(int)) > 1, np.diff(bounds))
    assert seen[several].mean() > 0.995
    assert not seen[~several].any()


def test_examples_are_full_unless_short_or_at_a_documents_end() -> None:
    spec = ExampleSpec(max_length=64)
    _, plan, found = planned(spec)
    target, share = draw_sizes(spec, cut_keys(0, 0, plan.starts))
    inside = found.next < plan.starts + plan.rooms
    size = found.a_size + found.b_size
    assert (size[inside] == target[inside]).all()
    assert (found.a_size[inside] == share[inside]).all()
    assert (size <= target).all()
    assert inside.mean() > 0.7


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5])
def test_a_tenth_is_short(probability: float) -> None:
    spec = ExampleSpec(max_length=64, short_probability=probability)
    _, plan, _ = planned(spec, toy_shard(documents=4000))
    target, share = draw_sizes(spec, cut_keys(0, 0, plan.starts))
    deviation = np.sqrt(probability * (1 - probability) / len(plan))
    # a short target may be drawn as the full length, once in max_text - 1
    assert (
        abs((target < spec.max_text).mean() - probability * (1 - 1 / (spec.max_text - 1)))
        <= 5 * deviation
    )
    assert target.min() >= 2
    assert share.min() >= 1
    assert (share < target).all()


def test_each_segment_is_cut_at_front_or_back_alike() -> None:
    texts, plan, found = planned(ExampleSpec(max_length=64), toy_shard(documents=3000))
    inside = found.next < plan.starts + plan.rooms
    for start, size in ((found.a_start, found.a_size), (found.b_start, found.b_size)):
        begins, ends = is_edge(texts, start[inside]), is_edge(texts, (start + size)[inside])
        assert (begins | ends).all()
        cut = ~(begins & ends)
        assert abs(begins[cut].mean() - 0.5) < 5 * 0.5 / np.sqrt(cut.sum())


def test_a_documents_end_stays_whole() -> None:
    _, plan, found = planned(ExampleSpec(max_length=512), shard_of([10, 20, 30, 40], [2, 2]))
    assert found.a_size.tolist() == [10, 30]
    assert found.b_size.tolist() == [20, 40]
    assert plan.starts.tolist() == [0, 30]


def test_one_sentence_left_is_dropped() -> None:
    shard = shard_of([10, 20, 30, 7], [2, 1, 1])
    _, plan, _ = planned(ExampleSpec(short_probability=0), shard)
    assert len(plan) == 1
    for spec in (
        ExampleSpec(one_segment="random", short_probability=0),
        ExampleSpec(order="none", short_probability=0),
    ):
        _, plan, found = planned(spec, shard)
        assert len(plan) == 3
        assert found.b_size.tolist() == [20, 0, 0]


def test_overlong_sentences_are_taken_as_pieces() -> None:
    """A document without a single sentence end is read nonetheless."""
    spec = ExampleSpec(max_length=64)
    texts, _, found = planned(spec, shard_of([5000, 10, 20], [1, 2]))
    assert texts.shards[0].boundaries.cuts.size
    assert (found.a_size + found.b_size)[:-1].sum() > 0.7 * 5000
    texts, _, _ = planned(spec, shard_of([61, 61], [2]))
    assert not texts.shards[0].boundaries.cuts.size


def test_the_size_of_shards_changes_nothing() -> None:
    sizes, counts = np.full(400, 13), np.full(40, 10)
    spec = ExampleSpec(max_length=64)
    _, one, whole = planned(spec, shard_of(sizes, counts), split="train")
    halves = shard_of(sizes[:150], counts[:15]), shard_of(sizes[150:], counts[15:], first=150 * 13)
    texts, two, parts = planned(spec, *halves, split="train")
    assert (one.starts == two.starts).all()
    assert all((a == b).all() for a, b in zip(whole, parts, strict=True))
    assert (texts.documents_of(np.array([0, 1949, 1950, 5199])) == [0, 14, 15, 39]).all()


def test_splits_divide_the_documents_whatever_the_seed() -> None:
    spec = ExampleSpec(max_length=64, heldout_fraction=0.2)
    documents = {}
    for split in ("train", "heldout", "all"):
        for seed in (0, 1):
            texts, plan, _ = planned(spec, seed=seed, split=split)
            documents[split, seed] = set(texts.documents_of(plan.starts).tolist())
        assert documents[split, 0] == documents[split, 1]
    assert documents["train", 0] | documents["heldout", 0] == documents["all", 0]
    assert not documents["train", 0] & documents["heldout", 0]
    assert abs(is_heldout(np.arange(100_000), 0.01).mean() - 0.01) < 0.0016
    # a larger part contains the smaller
    assert (is_heldout(np.arange(1000), 0.3) >= is_heldout(np.arange(1000), 0.1)).all()


def test_very_long_documents_are_divided_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "STRETCH", 500)
    shard = shard_of(np.full(1000, 11), [700, 1, 299])
    texts, plan, found = planned(ExampleSpec(max_length=64, short_probability=0), shard)
    assert (np.diff(plan.starts) > 0).all()
    assert plan.rooms.max() <= 511
    assert (found.a_size + found.b_size).sum() > 0.75 * texts.num_tokens
    assert (
        texts.documents_of(found.b_start + found.b_size - 1) == texts.documents_of(plan.starts)
    ).all()


def test_empty_sentences_and_documents_are_harmless() -> None:
    shard = shard_of([10, 0, 20, 30, 0], [0, 3, 0, 2])
    _, plan, found = planned(ExampleSpec(short_probability=0), shard)
    assert plan.starts.tolist() == [0]
    assert (found.a_size.tolist(), found.b_size.tolist()) == ([10], [20])


def test_epochs_and_seeds_differ_and_copies_repeat() -> None:
    spec = ExampleSpec(max_length=64)
    _, first, _ = planned(spec)
    assert (
        len(planned(spec, epoch=1)[1]) != len(first)
        or (planned(spec, epoch=1)[1].starts != first.starts).any()
    )
    assert (
        len(planned(spec, seed=1)[1]) != len(first)
        or (planned(spec, seed=1)[1].starts != first.starts).any()
    )
    fixed = ExampleSpec(max_length=64, copies=2)
    assert (planned(fixed, epoch=3)[1].starts == planned(fixed, epoch=1)[1].starts).all()
    assert (planned(fixed, epoch=1)[1].starts == planned(spec, epoch=1)[1].starts).all()
    assert (
        planned(fixed, epoch=3)[1].order(np.arange(5))
        != planned(fixed, epoch=1)[1].order(np.arange(5))
    ).any()
