"""The scheduler: jobs of many texts in; their results, in order, out.

One thread computes for all models, so that they share the processor instead of fighting for it. At
each tick it takes the runner (runners.py) that has waited longest, admits texts to it up to a
budget of tokens, and lets it compute: a whole batch, or one layer of all its texts. Texts are
admitted one of every waiting job in turn. A job of a thousand texts thus delays a single text by
about one batch, and no text waits for ever, however long it is. A job whose deadline has passed, or
whose client has gone, is dropped between two ticks.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

MEMORY = 0.95
"""Of the speed of the ticks before, what still counts at the next one."""


class DeadlineError(Exception):
    """A job was not done in time."""


class QueueFullError(Exception):
    """More tokens wait than the queue holds."""


class QueueSizes(NamedTuple):
    jobs: int
    tokens: int


class Tick(NamedTuple):
    """What one call of a runner was."""

    key: Any
    """Of one of its texts."""
    items: int
    tokens: int
    seconds: float


class Served(NamedTuple):
    """A job that has its results."""

    key: Any
    items: int
    tokens: int
    waited_seconds: float
    """Until its first text was admitted."""
    seconds: float
    """From then to the last result."""


class Ticket(NamedTuple):
    """One text of a job."""

    job: "Job"
    number: int

    @property
    def item(self) -> Any:
        return self.job.items[self.number]

    @property
    def size(self) -> int:
        return self.job.sizes[self.number]


class Runner(Protocol):
    """What computes texts, tick by tick."""

    max_tokens: int
    """Tokens that it computes at once, or one text."""

    def admit(self, ticket: Ticket) -> None:
        """Compute this too, from the next tick on; an exception refuses it."""

    def tick(self) -> list[tuple[Ticket, Any]]:
        """Compute; the texts that are done, each with its result or the exception that ended it."""

    def drop(self, is_gone: Callable[[Ticket], bool]) -> None:
        """Forget texts that nobody waits for."""


class Job:
    """Items that are computed in the same way, for one client."""

    def __init__(
        self, key: Hashable, items: Sequence[Any], sizes: Sequence[int], *, deadline: float
    ) -> None:
        """`key` says how, `sizes` are the items' tokens, `deadline` a time of
        time.monotonic()."""
        assert len(items) == len(sizes) > 0
        self.key, self.items, self.sizes, self.deadline = key, items, sizes, deadline
        self.future: Future[list[Any]] = Future()
        self.results: list[Any] = [None] * len(items)
        self.admitted = self.num_done = 0
        """Items that a runner has read, and that have results."""
        self.tokens_left = sum(sizes)
        self.is_over = False
        self.came = self.began = time.monotonic()


class _Lane:
    """A runner with the jobs that wait for it."""

    def __init__(self, runner: Runner, last_tick: int) -> None:
        self.runner, self.last_tick = runner, last_tick
        self.waiting: deque[Job] = deque()
        """Those with items to admit, the next one first."""
        self.active: dict[Job, set[int]] = {}
        """Those with items in the runner, and which."""

    @property
    def tokens(self) -> int:
        """In the runner."""
        return sum(job.sizes[number] for job, numbers in self.active.items() for number in numbers)


class Scheduler:
    """A queue and the thread that computes."""

    def __init__(
        self,
        route: Callable[[Any], Runner],
        *,
        queue_tokens: int,
        on_tick: Callable[[Tick], None] = lambda tick: None,
        on_served: Callable[[Served], None] = lambda served: None,
    ) -> None:
        """`route` tells which runner computes a job, by its key; always the same one."""
        self._route, self._on_tick, self._on_served = route, on_tick, on_served
        self.queue_tokens = queue_tokens
        self._lanes: dict[int, _Lane] = {}
        """By runner; those that have work."""
        self._jobs = self._waiting_tokens = self._ticks = 0
        self._done_tokens = self._busy_seconds = 0.0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="litebert-compute", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Accept a job; its future will have the results. QueueFullError where too much waits; a
        job of any size is accepted while less than the limit waits."""
        with self._changed:
            if self._stopping or self._waiting_tokens >= self.queue_tokens:
                raise QueueFullError
            runner = self._route(job.key)
            # behind lanes that wait already, so that short jobs that come and go do not pass them
            lane = self._lanes.setdefault(id(runner), _Lane(runner, self._ticks - 1))
            lane.waiting.append(job)
            self._jobs += 1
            self._waiting_tokens += job.tokens_left
            self._changed.notify()

        def gone(future: Future[list[Any]]) -> None:
            if future.cancelled():
                self._cancel(job)

        job.future.add_done_callback(gone)

    @property
    def is_full(self) -> bool:
        return self._waiting_tokens >= self.queue_tokens

    @property
    def sizes(self) -> QueueSizes:
        return QueueSizes(self._jobs, self._waiting_tokens)

    @property
    def waiting_seconds(self) -> float:
        """How long the queue would take at the present speed; 1 where that is not known."""
        if not self._done_tokens:
            return 1.0
        return self._waiting_tokens * self._busy_seconds / self._done_tokens

    def stop(self) -> None:
        """Finish what was accepted and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._lanes and not self._stopping:
                    self._changed.wait()
                if not self._lanes:
                    return
                lane = min(self._lanes.values(), key=lambda lane: lane.last_tick)
                self._ticks += 1
                lane.last_tick = self._ticks
                has_gone = self._forget(lane)
                taken = self._take(lane)
            if has_gone:
                self._drop(lane)
            self._admit(lane, taken)
            if lane.active:
                self._tick(lane)
            with self._changed:
                if not lane.active and not lane.waiting:
                    self._lanes.pop(id(lane.runner), None)

    def _forget(self, lane: _Lane) -> bool:
        """Forget active jobs whose client has gone or whose time is over, if any; those that wait
        are looked at when their turn comes. The lock is held."""
        now = time.monotonic()
        for job in lane.active:
            if job.deadline <= now:
                self._finish(job, DeadlineError())
        over = [job for job in lane.active if job.is_over]
        for job in over:
            del lane.active[job]
        return bool(over)

    def _drop(self, lane: _Lane) -> None:
        """Let the runner forget them too: without the lock."""
        try:
            lane.runner.drop(lambda ticket: ticket.job.is_over)
        except Exception as error:
            self._fail(lane, error)

    def _fail(self, lane: _Lane, error: Exception) -> None:
        """End all active jobs."""
        with self._changed:
            for job in lane.active:
                self._finish(job, error)

    def _take(self, lane: _Lane) -> list[Ticket]:
        """The next items: one of each job in turn, within the budget. What does not fit waits, and
        nothing is taken before it. The lock is held."""
        taken: list[Ticket] = []
        now, tokens = time.monotonic(), lane.tokens
        while lane.waiting:
            job = lane.waiting[0]
            if job.is_over or job.deadline <= now:
                self._finish(job, DeadlineError())
                lane.waiting.popleft()
                continue
            ticket = Ticket(job, job.admitted)
            if tokens and tokens + ticket.size > lane.runner.max_tokens:
                break
            lane.waiting.popleft()
            if not job.admitted:
                job.began = now
            job.admitted += 1
            tokens += ticket.size
            taken.append(ticket)
            if job.admitted < len(job.items):
                lane.waiting.append(job)
        return taken

    def _admit(self, lane: _Lane, tickets: Sequence[Ticket]) -> None:
        """Hand items to the runner, which tokenizes them: without the lock."""
        for ticket in tickets:
            try:
                lane.runner.admit(ticket)
            except Exception as error:
                with self._changed:
                    self._finish(ticket.job, error)
            else:
                lane.active.setdefault(ticket.job, set()).add(ticket.number)

    def _tick(self, lane: _Lane) -> None:
        """Compute, without the lock, and hand out what is done."""
        key, items = next(iter(lane.active)).key, sum(map(len, lane.active.values()))
        tokens, began = lane.tokens, time.monotonic()
        results: list[tuple[Ticket, Any]] = []
        try:
            results = lane.runner.tick()
        except Exception as error:
            self._fail(lane, error)
        seconds = time.monotonic() - began
        self._on_tick(Tick(key, items, tokens, seconds))
        with self._changed:
            self._busy_seconds = MEMORY * self._busy_seconds + seconds
            self._done_tokens *= MEMORY
            for ticket, result in results:
                self._deliver(lane, ticket, result)

    def _deliver(self, lane: _Lane, ticket: Ticket, result: Any) -> None:
        """A result to its job. The lock is held."""
        job, number = ticket
        numbers = lane.active.get(job)
        if numbers is None:  # the runner could not forget it
            return
        numbers.remove(number)
        if not numbers:
            del lane.active[job]
        self._done_tokens += ticket.size
        if job.is_over:
            return
        if isinstance(result, Exception):
            self._finish(job, result)
            return
        job.results[number] = result
        job.num_done += 1
        job.tokens_left -= ticket.size
        self._waiting_tokens -= ticket.size
        if job.num_done == len(job.items):
            self._finish(job, None)

    def _finish(self, job: Job, error: Exception | None) -> None:
        """Answer a job, unless that is done. The lock is held."""
        if job.is_over:
            return
        job.is_over = True
        self._jobs -= 1
        self._waiting_tokens -= job.tokens_left
        if not job.future.set_running_or_notify_cancel():
            return
        if error is not None:
            job.future.set_exception(error)
            return
        waited, seconds = job.began - job.came, time.monotonic() - job.began
        # first: who has an answer finds it counted
        self._on_served(Served(job.key, len(job.items), sum(job.sizes), waited, seconds))
        job.future.set_result(job.results)

    def _cancel(self, job: Job) -> None:
        """Nobody waits for this job any more."""
        with self._changed:
            self._finish(job, DeadlineError())
