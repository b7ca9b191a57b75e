"""Two ranks equal one; a signal to one of them is a signal to all; a killed rank is started again
and nothing shows.

Gloo, through real torchrun. The long campaigns are in torture/ranks.py.
"""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.data.stream import Stream
from litebert.errors import CheckpointError, ConfigError
from litebert.recipes import FractionStages
from litebert.testing import tiny_recipe
from litebert.train.pretrain.evaluate import HeldoutScorer
from litebert.train.pretrain.job import Feed
from litebert.train.pretrain.run import Pretraining, example_spec
from litebert.train.runtime import Runtime
from tests.helpers.launch import finish, ranks_of, start, state, wait_for_step
from tests.helpers.pretraining import assert_same_run, essence, staged_recipe

LONG = ("--steps", "30", "--save-every", "3")


def rank(number: int, of: int) -> Runtime:
    return Runtime(rank=number, world_size=of, device=torch.device("cpu"), dtype=torch.float32)


def test_two_ranks_equal_one_and_survive_a_signal_and_a_kill(shards: Path, tmp_path: Path) -> None:
    one, two, torn = tmp_path / "one", tmp_path / "two", tmp_path / "torn"
    running = [start(shards, one, *LONG), start(shards, two, *LONG, ranks=2)]
    assert [finish(process) for process in running] == [0, 0]
    alone, together = essence(one), essence(two)
    assert [(record["kind"], record["step"]) for record in together] == [
        (record["kind"], record["step"]) for record in alone
    ]
    for mine, theirs in zip(together, alone, strict=True):
        numbers = {name: value for name, value in theirs.items() if isinstance(value, float)}
        assert {name: mine[name] for name in numbers} == pytest.approx(numbers, rel=1e-5, abs=1e-5)

    first = start(shards, torn, *LONG, ranks=2)
    assert wait_for_step(torn, 5, first)
    os.kill(ranks_of(first.pid)[1], signal.SIGTERM)
    assert (
        finish(first) == 1
    )  # torchrun's answer to any rank that did not return 0; the ranks themselves return 75
    assert "exitcode  : 75" in (tmp_path / "torn.log").read_text()
    assert state(torn) == "interrupted"

    second = start(shards, torn, *LONG, ranks=2, restarts=2)
    assert wait_for_step(torn, 15, second)
    os.kill(ranks_of(second.pid)[1], signal.SIGKILL)
    assert finish(second) == 0
    assert (tmp_path / "torn.log").read_text().count("resumed at step") == 2
    assert_same_run(torn, two)


@pytest.mark.parametrize("ranks", [2])
def test_ranks_share_the_examples_of_one(shards: Path, ranks: int) -> None:
    """The rows of rank 0, then those of rank 1, are the batch that one rank reads, at every
    stage."""
    recipe = staged_recipe()

    def feed(runtime: Runtime) -> Feed:
        return Feed(Stream.open(shards, example_spec(recipe), seed=recipe.seed), recipe, runtime)

    alone, shared = feed(rank(0, 1)), [feed(rank(number, ranks)) for number in range(ranks)]
    for step in range(recipe.total_steps):
        whole, parts = alone.batch(step), [one.batch(step) for one in shared]
        for name in ("token_ids", "mask", "indices", "masked_labels", "order_labels"):
            np.testing.assert_array_equal(
                np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name)
            )


def test_ranks_share_the_heldout_examples_and_pause_equally_often(shards: Path) -> None:
    stream = Stream.open(shards, example_spec(tiny_recipe()), seed=3)
    alone = HeldoutScorer(stream, rank(0, 1), tokens=10**6).batches("sop", 8)
    shared = [
        HeldoutScorer(stream, rank(number, 3), tokens=10**6).batches("sop", 8)
        for number in range(3)
    ]
    assert len({len(batches) for batches in shared}) == 1
    actual = [
        batch.indices for turn in zip(*shared, strict=True) for batch in turn if batch is not None
    ]
    np.testing.assert_array_equal(
        np.concatenate(actual), np.concatenate([batch.indices for batch in alone if batch])
    )


def test_heldout_masks_are_the_same_for_every_recipe(shards: Path) -> None:
    """Whatever training masks, and with what, and however it cuts; max_masked does not hold there
    either."""
    other = tiny_recipe(
        mask_fraction=FractionStages.parse("0:0.4,0.5:0.3"),
        mask_share=0.5,
        random_share=0.5,
        max_masked=1,
        copies=2,
        short_probability=0.5,
        one_segment="random",
        cutting="last",
        random_specials=True,
    )
    usual, found = (
        HeldoutScorer(Stream.open(shards, example_spec(recipe), seed=3), rank(0, 1), tokens=10**6)
        for recipe in (tiny_recipe(), other)
    )
    for mine, theirs in zip(found.batches("sop", 24), usual.batches("sop", 24), strict=True):
        np.testing.assert_array_equal(mine.token_ids, theirs.token_ids)
        np.testing.assert_array_equal(mine.masked_positions, theirs.masked_positions)
    training = Pretraining(tiny_recipe(evaluate_mask_fraction=0.5), shards, rank(0, 1))
    batches = training.evaluation.batches("sop", 24)
    masked, tokens = (
        sum(getattr(b, name) for b in batches) for name in ("num_masked", "num_tokens")
    )
    assert masked / tokens == pytest.approx(0.5, abs=0.05)


def test_a_batch_that_does_not_divide_is_refused_before_the_run(shards: Path) -> None:
    with pytest.raises(
        ConfigError,
        match="divided evenly among ranks, and 6 sequences are not among 4; change batch_size",
    ):
        Pretraining(staged_recipe(), shards, rank(1, 4))


@pytest.mark.parametrize(("is_emulated", "dtype"), [(True, torch.float32), (False, torch.bfloat16)])
def test_bfloat16_is_chosen_on_gpus_that_have_it(
    is_emulated: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_supported(including_emulation: bool = True) -> bool:
        return including_emulation or not is_emulated

    for name, function in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "set_device": lambda device: None,
        "is_bf16_supported": is_supported,
    }.items():
        monkeypatch.setattr(torch.cuda, name, function)
    assert Runtime.start().dtype is dtype


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        ConfigError,
        match="rank 3 wants cuda:1, and the GPUs that torch sees here are 1; start as many "
        "processes as there are GPUs, or use --device cpu",
    ):
        Runtime.start()


def test_ranks_that_see_different_snapshots_are_refused(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second machine whose run folder is not the shared one."""
    monkeypatch.setattr(Runtime, "total", lambda self, numbers: dict(numbers) | {"number": 4.0})
    monkeypatch.setattr(Runtime, "wait", lambda self: None)
    training = Pretraining(tiny_recipe(), shards, rank(1, 2))
    with pytest.raises(
        CheckpointError,
        match=r"rank 1 finds the snapshot of step -1 in .*, rank 0 that of 4; every machine must",
    ):
        training.train(tmp_path / "run", progress=False)
