"""What progress says beside losses: where a stage begins, and how long a run will take."""

import io
from typing import Any

import pytest

from litebert.recipes import Stages, named
from litebert.train.pretrain.job import Feed, PretrainJob
from litebert.train.progress import ExpectedTime, ProgressSink, stage_change

STEP: dict[str, Any] = {
    "kind": "step",
    "step": 599,
    "loss": 4.0,
    "tokens": 10,
    "sequence_length": 16,
    "batch_size": 64,
    "depth": 2,
    "mask_fraction": 0.15,
}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, ""),
        ({"batch_size": 1024}, "a stage begins: batches of 1,024 instead of 64"),
        (
            {"sequence_length": 64, "batch_size": 16, "depth": 3},
            "a stage begins: sequences of 64 tokens instead of 16, batches of 16 instead of 64, "
            "3 layers instead of 2; the loss is not comparable with that before",
        ),
        (
            {"mask_fraction": 0.3},
            "a stage begins: 30% of the tokens masked instead of 15%; the loss is not comparable "
            "with that before",
        ),
    ],
)
def test_a_stage_says_what_changes(changes: dict[str, Any], line: str) -> None:
    assert stage_change(STEP, STEP | changes) == line


def test_batches_of_fine_tuning_are_no_stages() -> None:
    before = {name: value for name, value in STEP.items() if name != "depth"}
    assert stage_change(before, before | {"sequence_length": 20}) == ""
    assert stage_change({}, STEP) == ""


def test_a_stage_is_announced_once_where_it_begins() -> None:
    stream = io.StringIO()
    with ProgressSink(1000, stream=stream) as sink:
        for step in range(598, 603):
            sink(STEP | {"step": step, "sequence_length": 16 if step < 600 else 64})
    lines = stream.getvalue().splitlines()
    assert [line for line in lines if "stage" in line] == [
        "step 600: a stage begins: sequences of 64 tokens instead of 16; the loss is not "
        "comparable with that before"
    ]


def test_the_expected_time_is_that_of_the_first_steps() -> None:
    """1,000 steps of which the second half costs four times as much; the first step, of 60 s, does
    not count, and the estimate comes once, after ten seconds of steps."""
    messages: list[tuple[int, str]] = []
    cost = [1.0] * 500 + [4.0] * 500
    expected = ExpectedTime(
        lambda metrics: cost[metrics["step"]],
        lambda step: sum(cost[step:]),
        lambda step, message: messages.append((step, message)),
    )
    for step in range(30):
        expected(step, {"step": step, "seconds": 60.0 + 2.5 * step})
    left = 2.5 * (495 + 4 * 500)  # 6,237.5 s
    assert left // 60 == 103
    assert messages == [
        (
            5,
            "about 1 h 44 min left on this machine, evaluations not counted, at the speed of the "
            "first steps",
        )
    ]


def test_a_short_run_is_not_told_its_time() -> None:
    messages: list[tuple[int, str]] = []
    expected = ExpectedTime(
        lambda metrics: 1.0, lambda step: 100.0 - step, lambda *message: messages.append(message)
    )
    for step in range(100):
        expected(step, {"seconds": 2.0 * step})
    assert messages == []


def test_the_work_of_pretraining_is_tokens_times_layers() -> None:
    recipe = named("demo").changed(
        {"steps": 10, "tokens": None, "batch_size": Stages(((0, 8), (5, 2)))}
    )
    job = PretrainJob.__new__(PretrainJob)
    job.recipe, job.steps, job.num_layers = recipe, 10, 3
    job.feed = Feed.__new__(Feed)
    job.feed.recipe, job.feed.steps = recipe, 10
    by_hand = [
        length * batch * depth
        for length, batch, depth in ([(16, 8, 2)] * 5 + [(16, 2, 2)] + [(64, 2, 3)] * 4)
    ]
    for step in (0, 3, 9, 10):
        assert job.work_left(step) == sum(by_hand[step:])
    assert job.work({"sequence_length": 64, "batch_size": 2, "depth": 3}) == by_hand[-1]
