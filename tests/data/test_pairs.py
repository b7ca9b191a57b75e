"""Half of the pairs are swapped or strange; labels say which; documents never mix unless they are
meant to."""

import numpy as np
import pytest

from litebert.data.pairs import Pairs, cut_everywhere, make_pairs
from litebert.data.plan import Plan, Segments, plan_epoch
from litebert.data.spec import ExampleSpec
from litebert.data.texts import Texts
from litebert.errors import ConfigError
from tests.helpers.toy_shards import shard_of, toy_shard

SHARD = toy_shard(documents=500)


def paired(spec: ExampleSpec, shard=SHARD) -> tuple[Texts, Plan, Segments, Pairs]:
    texts = Texts([shard], spec.max_text)
    plan = plan_epoch(texts, spec, seed=0, epoch=0, split="all")
    numbers = np.arange(len(plan))
    segments = cut_everywhere(texts, spec, plan, numbers, seed=0)
    return texts, plan, segments, make_pairs(texts, spec, plan, numbers, seed=0)


def half(labels: np.ndarray) -> bool:
    return bool(abs(labels.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(labels)))


def test_half_is_swapped_and_the_label_says_so() -> None:
    _, _, segments, pairs = paired(ExampleSpec(max_length=64))
    swapped = pairs.labels == 1
    assert half(pairs.labels)
    assert ((pairs.a_start < pairs.b_start) == ~swapped).all()
    for ours, first, second in (("a", "a", "b"), ("b", "b", "a")):
        for field in ("start", "size"):
            expected = np.where(
                swapped,
                getattr(segments, f"{second}_{field}"),
                getattr(segments, f"{first}_{field}"),
            )
            assert (getattr(pairs, f"{ours}_{field}") == expected).all()


def test_order_none_leaves_the_text_alone() -> None:
    _, _, segments, pairs = paired(ExampleSpec(max_length=64, order="none"))
    assert not pairs.labels.any()
    assert (pairs.a_start == segments.a_start).all()
    assert (pairs.b_size == segments.b_size).all()
    assert (pairs.b_size == 0).any()


def test_nsp_takes_half_from_another_document() -> None:
    texts, _, segments, pairs = paired(ExampleSpec(max_length=64, order="nsp"))
    strange = pairs.labels == 1
    assert half(pairs.labels)
    a, b = texts.documents_of(pairs.a_start), texts.documents_of(pairs.b_start)
    assert ((a != b) == strange).all()
    assert (texts.documents_of(pairs.b_start + pairs.b_size - 1) == b).all()
    assert (pairs.b_start[~strange] == segments.b_start[~strange]).all()
    # as long as the segment that it replaces, nearly always
    assert (pairs.b_size <= segments.b_size).all()
    assert (pairs.b_size == segments.b_size).mean() > 0.99


def test_one_segment_gets_a_strange_one_as_in_the_reference() -> None:
    texts, _, segments, pairs = paired(ExampleSpec(max_length=64, one_segment="random"))
    alone = segments.b_size == 0
    assert alone.any()
    assert (pairs.labels[alone] == 1).all()
    assert half(pairs.labels[~alone])
    assert (
        texts.documents_of(pairs.a_start[alone]) != texts.documents_of(pairs.b_start[alone])
    ).all()
    assert (pairs.b_size >= 1).all()
    assert (pairs.a_size + pairs.b_size <= 61).all()


def test_another_document_is_found_even_where_one_is_nearly_all() -> None:
    texts, plan, _, pairs = paired(
        ExampleSpec(max_length=16, order="nsp"), shard_of([9] * 2000, [1998, 2])
    )
    strange = pairs.labels == 1
    own = texts.documents_of(plan.starts)
    assert ((texts.documents_of(pairs.b_start) != own) == strange).all()
    assert len(set(own.tolist())) == 2


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"order": "next"}, "order is one of sop, nsp, none; got 'next'"),
        ({"one_segment": "keep"}, "one_segment is one of drop, random"),
        ({"cutting": "first"}, "cutting is one of even, last"),
        ({"max_length": 4}, "max_length is a number from 5 to 65536; got 4"),
        ({"short_probability": 1.5}, "short_probability is a number from 0 to 1"),
        ({"mask_fraction": 0}, "mask_fraction is a number from 0.001 to 0.9"),
        ({"max_ngram": 0}, "max_ngram is a number from 1 to 64"),
        ({"heldout_fraction": 0.9}, "heldout_fraction is a number from 0 to 0.5"),
        ({"copies": 0}, "copies is at least 1, or none; got 0"),
        ({"max_masked": 0}, "max_masked is at least 1, or none; got 0"),
    ],
)
def test_wrong_settings_are_named(setting: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExampleSpec(**setting)
