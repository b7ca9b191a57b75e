"""The scheduler: budgets, turns, deadlines and stops, with work that takes no model."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import count
from typing import Any

import pytest

from litebert.errors import DataError
from litebert.serve.runners import Static
from litebert.serve.scheduler import (
    DeadlineError,
    Job,
    QueueFullError,
    Runner,
    Scheduler,
    Served,
    Tick,
    Ticket,
)
from tests.helpers.serving import HANGS, wait_for


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


def routed(recorder: Recorder) -> Callable[[str], Runner]:
    """A runner of batches for each key."""
    return cache(lambda key: Static(partial(recorder, key), max_tokens=10))


@pytest.fixture
def scheduler(recorder: Recorder) -> Iterator[Scheduler]:
    scheduler = Scheduler(routed(recorder), queue_tokens=1000)
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
    # b has waited longer: a has just computed
    assert recorder.calls[1:] == [[11, 12], [1, 2], [13, 14], [3, 4], [15, 16], [5, 6]]


def test_short_jobs_that_come_and_go_do_not_pass_a_long_one(
    scheduler: Scheduler, recorder: Recorder
) -> None:
    start(scheduler, recorder)
    long, keys = job(range(40), key="long"), map(str, count())

    def another(done: object = None) -> None:
        if not long.future.done() and len(recorder.calls) < 200:
            short = job([1], key=next(keys))
            scheduler.submit(short)
            short.future.add_done_callback(another)

    scheduler.submit(long)
    another()
    another()
    recorder.go_on.set()
    long.future.result(HANGS)
    # its 20 calls take turns with those of two short jobs
    assert len(recorder.calls) <= 64


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
    scheduler = Scheduler(routed(recorder), queue_tokens=1000)
    many = job(range(50))
    scheduler.submit(many)
    recorder.go_on.set()
    scheduler.stop()
    assert many.future.done()
    with pytest.raises(QueueFullError):
        scheduler.submit(job([1]))


# ---- runners that take several ticks for a text


class Steps:
    """Doubles numbers, each after as many ticks as it says, once it may go on."""

    max_tokens = 10

    def __init__(self) -> None:
        self.left: dict[Ticket, int] = {}
        self.seen: list[list[int]] = []
        self.refused: set[int] = set()
        self.entered, self.go_on = threading.Event(), threading.Event()

    def admit(self, ticket: Ticket) -> None:
        if ticket.item in self.refused:
            raise DataError("cannot be read")
        self.left[ticket] = ticket.item

    def drop(self, is_gone: Callable[[Ticket], bool]) -> None:
        self.left = {ticket: left for ticket, left in self.left.items() if not is_gone(ticket)}

    def tick(self) -> list[tuple[Ticket, Any]]:
        self.seen.append(sorted(ticket.item for ticket in self.left))
        self.entered.set()
        assert self.go_on.wait(HANGS)
        self.left = {ticket: left - 1 for ticket, left in self.left.items()}
        done = [ticket for ticket, left in self.left.items() if left <= 0]
        for ticket in done:
            del self.left[ticket]
        return [
            (ticket, DataError("refused") if ticket.item == 13 else 2 * ticket.item)
            for ticket in done
        ]


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def stepping(steps: Steps) -> Iterator[Scheduler]:
    scheduler = Scheduler(lambda key: steps, queue_tokens=1000)
    yield scheduler
    steps.go_on.set()
    scheduler.stop()


def test_texts_join_while_others_are_computed(stepping: Scheduler, steps: Steps) -> None:
    first, second, third = job([3], size=4), job([1, 2], size=3), job([1], size=3)
    stepping.submit(first)
    assert steps.entered.wait(HANGS)
    stepping.submit(second)
    stepping.submit(third)
    steps.go_on.set()
    assert [each.future.result(HANGS) for each in (first, second, third)] == [[6], [2, 4], [2]]
    # within 10 tokens, one of each job in turn; who leaves makes room
    assert steps.seen == [[3], [1, 1, 3], [2, 3], [2]]


def test_results_keep_their_order_whoever_is_done_first(stepping: Scheduler, steps: Steps) -> None:
    steps.go_on.set()
    many = job([5, 1, 3, 2, 4, 1], size=2)
    stepping.submit(many)
    assert many.future.result(HANGS) == [10, 2, 6, 4, 8, 2]
    assert stepping.sizes == (0, 0)


def test_who_has_gone_leaves_the_runner(stepping: Scheduler, steps: Steps) -> None:
    gone, other = job([500], size=5), job([2], size=5)
    stepping.submit(gone)
    stepping.submit(other)
    assert steps.entered.wait(HANGS)
    gone.future.cancel()
    steps.go_on.set()
    assert other.future.result(HANGS) == [4]
    stepping.stop()
    assert len(steps.seen) <= 4
    assert steps.left == {}


def test_a_deadline_ends_what_is_being_computed(stepping: Scheduler, steps: Steps) -> None:
    late, other = job([10**9], size=5, seconds=0.05), job([3], size=5)
    stepping.submit(late)
    stepping.submit(other)
    steps.go_on.set()
    with pytest.raises(DeadlineError):
        late.future.result(HANGS)
    assert other.future.result(HANGS) == [6]


def test_an_error_ends_one_job_alone(stepping: Scheduler, steps: Steps) -> None:
    steps.refused = {7}
    jobs = [job(items, size=1) for items in ([1, 13, 1], [2, 7], [3, 1])]
    for each in jobs:
        stepping.submit(each)
    steps.go_on.set()
    with pytest.raises(DataError, match="refused"):
        jobs[0].future.result(HANGS)
    with pytest.raises(DataError, match="cannot be read"):
        jobs[1].future.result(HANGS)
    assert jobs[2].future.result(HANGS) == [6, 2]


def test_a_runner_that_breaks_ends_its_jobs_and_nothing_else(recorder: Recorder) -> None:
    class Broken(Steps):
        def tick(self) -> list[tuple[Ticket, Any]]:
            raise ValueError("broken")

    broken, recorder.go_on = Broken(), threading.Event()
    recorder.go_on.set()
    other = Static(partial(recorder, "a"), max_tokens=10)
    scheduler = Scheduler(lambda key: broken if key == "broken" else other, queue_tokens=1000)
    bad, good = job([1], key="broken"), job([1])
    scheduler.submit(bad)
    scheduler.submit(good)
    with pytest.raises(ValueError, match="broken"):
        bad.future.result(HANGS)
    assert good.future.result(HANGS) == [2]
    scheduler.stop()
    assert scheduler.sizes == (0, 0)


def test_a_runner_that_cannot_forget_ends_its_jobs_and_nothing_else() -> None:
    class Stubborn(Steps):
        def drop(self, is_gone: Callable[[Ticket], bool]) -> None:
            if not self.refused:
                self.refused = {7}
                raise MemoryError("no room")
            super().drop(is_gone)

    steps = Stubborn()
    scheduler = Scheduler(lambda key: steps, queue_tokens=1000)
    steps.go_on.set()
    gone, other, later = job([10**9], size=1), job([10**9], size=1), job([2], size=1)
    scheduler.submit(gone)
    scheduler.submit(other)
    wait_for(lambda: len(steps.left) == 2)
    gone.future.cancel()
    with pytest.raises(MemoryError, match="no room"):
        other.future.result(HANGS)
    scheduler.submit(later)
    assert later.future.result(HANGS) == [4]
    scheduler.stop()
    assert scheduler.sizes == (0, 0)


def test_what_is_reported(steps: Steps) -> None:
    ticks: list[Tick] = []
    served: list[Served] = []
    scheduler = Scheduler(
        lambda key: steps, queue_tokens=1000, on_tick=ticks.append, on_served=served.append
    )
    steps.go_on.set()
    assert scheduler.waiting_seconds == 1.0
    two = job([1, 3], size=4)
    scheduler.submit(two)
    two.future.result(HANGS)
    scheduler.stop()
    assert [(tick.key, tick.items, tick.tokens) for tick in ticks] == [
        ("a", 2, 8),
        ("a", 1, 4),
        ("a", 1, 4),
    ]
    (one,) = served
    assert (one.key, one.items, one.tokens) == ("a", 2, 8)
    assert one.waited_seconds >= 0 <= one.seconds
    assert scheduler.waiting_seconds == 0


def test_a_job_is_counted_before_it_is_answered(steps: Steps) -> None:
    """Else /metrics may lack a request whose client has its answer."""
    one, answered = job([1], size=1), list[bool]()
    scheduler = Scheduler(
        lambda key: steps,
        queue_tokens=1000,
        on_served=lambda served: answered.append(one.future.done()),
    )
    steps.go_on.set()
    scheduler.submit(one)
    one.future.result(HANGS)
    scheduler.stop()
    assert answered == [False]
