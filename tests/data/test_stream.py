"""A batch is a pure function of (seed, epoch, index): composition, workers and ranks change
nothing."""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from litebert.data.batch import Batch, make_batch
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Position, Stream
from litebert.errors import ConfigError, DataError, LitebertError
from tests.helpers.toy_shards import (
    shard_of,
    toy_shard,
    toy_vocabulary,
    vocabulary_of,
    write_folder,
)

SHARD = toy_shard()
SPEC = ExampleSpec(max_length=64)


def make(spec: ExampleSpec = SPEC, **settings) -> Stream:
    return Stream([SHARD], vocabulary_of(SHARD), spec, **({"split": "all"} | settings))


def examples(stream: Stream, epoch: int, numbers: Sequence[int]) -> Batch:
    """By their number in the epoch's plan: what `Batch.indices` holds."""
    chosen = [(stream.plan(epoch), np.asarray(numbers))]
    return make_batch(stream.texts, stream.vocabulary, stream.spec, chosen, seed=stream.seed)


def once(stream: Stream, size: int, epoch: int = 0) -> list[Batch]:
    """Every example of an epoch; the last batch may be smaller."""
    count = stream.num_examples(epoch)
    return [stream.batch(epoch, at, min(size, count - at)) for at in range(0, count, size)]


def same(one: Batch, two: Batch) -> bool:
    return all(
        np.array_equal(getattr(one, f.name), getattr(two, f.name))
        for f in dataclasses.fields(Batch)
        if f.init
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shards = toy_shard(seed=1), toy_shard(seed=2)
    return write_folder(tmp_path_factory.mktemp("shards") / "data", *shards)


def test_an_example_is_the_same_alone_and_in_company() -> None:
    stream = make()
    full = stream.batch(2, 10, 30)
    fresh = make()
    for row in (29, 0, 13):
        assert same(full.rows(row, row + 1), fresh.batch(2, 10 + row, 1))
    assert same(full, examples(make(), 2, full.indices))


def test_an_epoch_shows_every_example_once() -> None:
    stream = make()
    batches = once(stream, 32, epoch=1)
    indices = np.concatenate([batch.indices for batch in batches])
    assert sorted(indices) == list(range(stream.num_examples(1)))
    assert (indices != np.sort(indices)).any()
    assert len(batches[-1]) == stream.num_examples(1) % 32 or 32


def test_epochs_follow_without_a_seam() -> None:
    stream = make()
    count = stream.num_examples(0)
    seam = stream.batch(0, count - 3, 8)
    assert same(seam.rows(0, 3), make().batch(0, count - 3, 3))
    assert same(seam.rows(3, 8), make().batch(1, 0, 5))
    assert stream.locate(Position(0, count + 2)) == Position(1, 2)
    many = stream.batch(0, 0, count + stream.num_examples(1) + 1)
    assert same(many.rows(len(many) - 1, len(many)), make().batch(2, 0, 1))


def test_seed_and_epoch_change_everything_and_static_copies_repeat() -> None:
    first = make().batch(0, 0, 16)
    assert not same(first, make().batch(1, 0, 16))
    assert not same(first, make(seed=1).batch(0, 0, 16))
    static = make(dataclasses.replace(SPEC, copies=3))
    first, again = (examples(static, epoch, range(16)) for epoch in (1, 4))
    # a generator, which changes, samples anew
    assert not np.array_equal(first.sample_keys, again.sample_keys)
    assert same(first, dataclasses.replace(again, sample_keys=first.sample_keys))
    assert same(examples(static, 2, range(16)), examples(make(), 2, range(16)))
    assert not same(examples(static, 0, range(16)), examples(static, 1, range(16)))


def test_masks_are_dynamic() -> None:
    """The same text, cut the same way, masks other tokens in another epoch."""
    shard = shard_of([10, 12] * 50, [2] * 50)
    stream = Stream(
        [shard], vocabulary_of(shard), ExampleSpec(max_length=64, short_probability=0), split="all"
    )
    one, two = (examples(stream, epoch, range(50)) for epoch in (0, 1))
    assert (one.mask == two.mask).all()
    assert not np.array_equal(one.masked_positions, two.masked_positions)
    assert (one.order_labels != two.order_labels).any()


def test_a_reader_goes_on_where_a_snapshot_says() -> None:
    stream = make()
    reader = stream.read(24, Position(0, stream.num_examples(0) - 50))
    first = list(islice(reader, 2))
    position = reader.position
    rest = list(islice(reader, 3))
    again = islice(make().read(24, Position(position.epoch, position.index)), 3)
    assert all(same(one, two) for one, two in zip(rest, again, strict=True))
    assert position.epoch == 0
    assert reader.position.epoch == 1
    assert same(first[0], stream.batch(0, stream.num_examples(0) - 50, 24))


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_share_the_batch_of_one(num_ranks: int) -> None:
    """Also across the end of an epoch."""
    start = Position(0, make().num_examples(0) - 30)
    full = list(islice(make().read(24, start), 3))
    for rank in range(num_ranks):
        rows = 24 // num_ranks
        for mine, all_of_it in zip(
            islice(make().read(24, start, rank=rank, num_ranks=num_ranks), 3), full, strict=True
        ):
            assert same(mine, all_of_it.rows(rank * rows, (rank + 1) * rows))


def test_another_length_is_another_stream_of_the_same_text() -> None:
    stream = make()
    longer = stream.at(128)
    assert longer.spec == dataclasses.replace(SPEC, max_length=128)
    assert same(
        longer.batch(3, 0, 8), make(dataclasses.replace(SPEC, max_length=128)).batch(3, 0, 8)
    )
    assert longer.batch(0, 0, 4).token_ids.shape == (4, 128)
    assert longer.num_examples() < stream.num_examples()


def test_another_fraction_masks_the_same_examples() -> None:
    stream = make()
    denser = stream.at(mask_fraction=0.5)
    assert denser.spec == dataclasses.replace(SPEC, mask_fraction=0.5)
    few, many = stream.batch(0, 5, 64), denser.batch(0, 5, 64)
    assert (few.indices == many.indices).all()
    assert same(many, make(denser.spec).batch(0, 5, 64))
    assert many.num_masked == pytest.approx(0.5 / 0.15 * few.num_masked, rel=0.05)


def test_full_rows_need_no_mask() -> None:
    shard = shard_of([9] * 1000, [1000])
    stream = Stream(
        [shard], vocabulary_of(shard), ExampleSpec(max_length=64, short_probability=0), split="all"
    )
    assert sum(batch.is_full for batch in once(stream, 1)) >= stream.num_examples() - 1


def test_plans_in_use_are_kept() -> None:
    stream = make()
    for epoch in range(4):
        stream.plan(epoch)
        assert stream.plan(epoch) is stream.plan(epoch)
    assert len(stream._plans) == 2


def test_a_plan_prepared_in_the_background_is_the_same() -> None:
    stream = make()
    stream.prepare(5)
    stream.prepare(5)
    assert (stream.plan(5).starts == make().plan(5).starts).all()


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing(folder: Path, workers: int) -> None:
    stream = Stream.open(folder, SPEC, seed=5)
    start = Position(0, stream.num_examples(0) - 70)
    inline = stream.read(16, start)
    with Stream.open(folder, SPEC, seed=5).read(16, start, workers=workers) as reader:
        for expected in islice(inline, 9):
            assert same(expected, next(reader))
    assert reader.position == inline.position
    assert inline.position.epoch == 1


def test_a_worker_imports_no_torch() -> None:
    script = "import sys, litebert.data.reader; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_forgotten_reader_ends_its_workers(folder: Path) -> None:
    reader = Stream.open(folder, SPEC).read(4, workers=1)
    next(reader)
    [process] = reader._workers.close.peek()[2][0]
    assert process.poll() is None
    del reader
    assert process.poll() is not None


def test_workers_end_with_a_killed_parent(folder: Path, tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import time
        from litebert.data.spec import ExampleSpec
        from litebert.data.stream import Stream
        reader = Stream.open({str(folder)!r}, ExampleSpec(max_length=64)).read(4, workers=2)
        next(reader)
        print(*[process.pid for process in reader._workers.close.peek()[2][0]], flush=True)
        time.sleep(3600)
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    while any(is_running(pid) for pid in workers):
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Neither gone nor waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks into /proc")
def test_a_dead_worker_is_said(folder: Path) -> None:
    reader = Stream.open(folder, SPEC).read(4, workers=2)
    next(reader)
    for process in reader._workers.close.peek()[2][0]:
        process.kill()
    with pytest.raises(LitebertError, match="a data worker ended with status -9"):
        list(islice(reader, 100))


def test_a_workers_own_error_reaches_the_caller(folder: Path) -> None:
    spec = ExampleSpec(max_length=64, heldout_fraction=0)
    with pytest.raises(DataError, match=r"no examples in .*: the split 'heldout'"):
        next(Stream.open(folder, spec, split="heldout").read(4, workers=1))


def test_the_tokenizers_words_and_specials_are_used(folder: Path) -> None:
    stream = Stream.open(folder, SPEC)
    assert (stream.vocabulary.cls_id, stream.vocabulary.mask_id) == (2, 4)
    assert stream.vocabulary.replacements.min() == 5
    everything = Stream.open(folder, dataclasses.replace(SPEC, random_specials=True)).vocabulary
    assert everything.replacements.min() == 0
    assert stream.tokenizer_folder == folder / "tokenizer"


def test_what_cannot_be_is_said() -> None:
    lonely = shard_of([10, 20], [1, 1])
    with pytest.raises(
        DataError, match="none chosen has two sentences; give more text, or order none"
    ):
        Stream([lonely], toy_vocabulary(50), SPEC, split="all").batch(0, 0, 1)
    one = shard_of([10] * 30, [30])
    for spec in (ExampleSpec(order="nsp"), ExampleSpec(one_segment="random")):
        with pytest.raises(DataError, match="there is only one document; use sop"):
            Stream([one], toy_vocabulary(500), spec, split="all").batch(0, 0, 1)
    with pytest.raises(ConfigError, match="got batch_size 5 for rank 0 of 2"):
        make().read(5, num_ranks=2)
    with pytest.raises(ConfigError, match="split is one of train, heldout, all; got 'dev'"):
        make(split="dev")
    with pytest.raises(ConfigError, match="workers read shards from a folder"):
        make().read(4, workers=1)
