"""The scheduler: budgets, turns, deadlines and stops, with work that takes no model."""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from litebert.errors import DataError
from litebert.serve.scheduler import DeadlineError, Job, QueueFullError, Scheduler
from tests.helpers.serving import HANGS


class Recorder:
    """Doubles numbers, and stops at the first call until it may go on."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.entered, self.go_on = threading.Event(), threading.Event()

    def __call__(self, key: Any, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        self.entered.set()
        assert self.go_on.wait(HANGS)
        if key == "bad":
            raise DataError("bad")
        return [2 * item for item in items]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def scheduler(recorder: Recorder) -> Iterator[Scheduler]:
    scheduler = Scheduler(recorder, batch_tokens=10, queue_tokens=1000)
    yield scheduler
    recorder.go_on.set()
    scheduler.stop()


def job(items: Sequence[int], *, size: int = 5, key: str = "a", seconds: float = HANGS) -> Job:
    sizes = [size] * len(items)
    return Job(key, items, sizes, deadline=time.monotonic() + seconds)


def start(scheduler: Scheduler, recorder: Recorder) -> Job:
    """A first call that computes while other jobs come."""
    first = job([0])
    scheduler.submit(first)
    assert recorder.entered.wait(HANGS)
    return first


def test_results_come_in_order_within_the_budget(scheduler: Scheduler, recorder: Recorder) -> None:
    recorder.go_on.set()
    many = job(range(99))
    scheduler.submit(many)
    assert many.future.result(HANGS) == [2 * number for number in range(99)]
    assert {len(call) for call in recorder.calls} == {1, 2}


def test_a_short_job_does_not_wait_for_a_long_one(scheduler: Scheduler, recorder: Recorder) -> None:
    first = start(scheduler, recorder)
    many, short = job(range(100, 160)), job([7])
    scheduler.submit(many)
    scheduler.submit(short)
    recorder.go_on.set()
    assert short.future.result(HANGS) == [14]
    assert many.future.result(HANGS)[-1] == 318
    assert first.future.result(HANGS) == [0]
    assert recorder.calls[1] == [100, 7]


def test_an_item_larger_than_the_budget_is_computed_alone(
    scheduler: Scheduler, recorder: Recorder
) -> None:
    start(scheduler, recorder)
    shorts = [job([number]) for number in range(10, 20)]
    large = job([5], size=500)
    for each in (*shorts[:4], large, *shorts[4:]):
        scheduler.submit(each)
    recorder.go_on.set()
    assert large.future.result(HANGS) == [10]
    assert [5] in recorder.calls
    # no later job is served before it
    assert recorder.calls.index([5]) < recorder.calls.index([14, 15])


def test_keys_take_turns(scheduler: Scheduler, recorder: Recorder) -> None:
    start(scheduler, recorder)
    a, b = job(range(1, 7), key="a"), job(range(11, 17), key="b")
    scheduler.submit(a)
    scheduler.submit(b)
    recorder.go_on.set()
    a.future.result(HANGS)
    b.future.result(HANGS)
    assert recorder.calls[1:] == [[1, 2], [11, 12], [3, 4], [13, 14], [5, 6], [15, 16]]


def test_a_job_past_its_deadline_is_dropped(scheduler: Scheduler, recorder: Recorder) -> None:
    start(scheduler, recorder)
    late = job([1, 2, 3], seconds=0)
    scheduler.submit(late)
    recorder.go_on.set()
    with pytest.raises(DeadlineError):
        late.future.result(HANGS)
    assert recorder.calls == [[0]]


def test_a_cancelled_job_is_dropped_and_its_tokens_are_free(
    scheduler: Scheduler, recorder: Recorder
) -> None:
    first = start(scheduler, recorder)
    gone, other = job([1, 2, 3]), job([4])
    scheduler.submit(gone)
    scheduler.submit(other)
    assert scheduler.sizes == (3, 25)
    gone.future.cancel()
    recorder.go_on.set()
    assert other.future.result(HANGS) == [8]
    assert first.future.result(HANGS) == [0]
    assert recorder.calls == [[0], [4]]
    assert scheduler.sizes == (0, 0)


def test_a_queue_takes_one_job_beyond_its_limit(scheduler: Scheduler, recorder: Recorder) -> None:
    start(scheduler, recorder)
    scheduler.submit(job([1], size=5000))
    with pytest.raises(QueueFullError):
        scheduler.submit(job([2]))
    assert scheduler.is_full


def test_an_error_goes_to_its_job(scheduler: Scheduler, recorder: Recorder) -> None:
    start(scheduler, recorder)
    bad, good = job([1], key="bad"), job([2])
    scheduler.submit(bad)
    scheduler.submit(good)
    recorder.go_on.set()
    with pytest.raises(DataError, match="bad"):
        bad.future.result(HANGS)
    assert good.future.result(HANGS) == [4]


def test_stop_finishes_what_was_accepted(recorder: Recorder) -> None:
    scheduler = Scheduler(recorder, batch_tokens=10, queue_tokens=1000)
    many = job(range(50))
    scheduler.submit(many)
    recorder.go_on.set()
    scheduler.stop()
    assert many.future.done()
    with pytest.raises(QueueFullError):
        scheduler.submit(job([1]))
