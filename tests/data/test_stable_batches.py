"""A seed's batches never change: digests of batches that version 0.1.0 drew, for several specs."""

import hashlib

import numpy as np
import pytest

from litebert.data.batch import Batch
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream
from tests.helpers.toy_shards import toy_shard, vocabulary_of

SHARDS = toy_shard(), toy_shard(seed=5, documents=80)
FIELDS = (
    "token_ids",
    "segment_ids",
    "mask",
    "masked_positions",
    "masked_labels",
    "order_labels",
    "indices",
)
SPECS = {
    "463b2cc6398a2c9c": ExampleSpec(max_length=64),
    "897d40d8916f2cb4": ExampleSpec(max_length=64, order="nsp"),
    "c0af5a552776c644": ExampleSpec(max_length=48, order="none"),
    "043100c515c3cff2": ExampleSpec(max_length=64, one_segment="random"),
    "bd3efe02ca1f3a7b": ExampleSpec(max_length=64, cutting="last", max_masked=5),
    "4877b03c3d52017a": ExampleSpec(max_length=32, short_probability=0.8, max_ngram=5),
    "54ba8d4f572a8035": ExampleSpec(
        max_length=128, copies=2, random_specials=True, mask_fraction=0.3
    ),
}


def digest(batch: Batch) -> str:
    sha = hashlib.sha256()
    for name in FIELDS:
        array = np.ascontiguousarray(getattr(batch, name))
        sha.update(f"{name} {array.dtype} {array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()[:16]


@pytest.mark.parametrize(
    ("expected", "spec"), SPECS.items(), ids=[str(s.order) for s in SPECS.values()]
)
def test_batches_are_those_of_the_first_release(expected: str, spec: ExampleSpec) -> None:
    stream = Stream(SHARDS, vocabulary_of(*SHARDS), spec, seed=7, split="all")
    # across the end of epoch 2
    batch = stream.batch(2, stream.num_examples(2) - 20, 40)
    assert digest(batch) == expected
