"""The scheduler: jobs of many texts in; batches for the models, and each job's results, out.

One thread computes for all models, so that they share the processor instead of fighting for it. At
each tick it takes texts that one call can compute together, up to a budget of tokens: one text of
every waiting job in turn, beginning with the job that has waited longest. A job of a thousand texts
thus delays a single text by about one batch, and no text waits for ever, however long it is. A job
whose deadline has passed, or whose client has gone, is dropped between two ticks.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from litebert.errors import LitebertError

Compute = Callable[[Any, Sequence[Any]], Sequence[Any]]
"""From a key and items to one result per item."""


class DeadlineError(Exception):
    """A job was not done in time."""


class QueueFullError(Exception):
    """More tokens wait than the queue holds."""


class QueueSizes(NamedTuple):
    jobs: int
    tokens: int


class Tick(NamedTuple):
    """What one call of a model was."""

    key: Any
    items: int
    tokens: int
    waited_seconds: float
    """By the first item since its job came."""
    seconds: float


class Job:
    """Items that are computed in the same way, for one client."""

    def __init__(
        self, key: Hashable, items: Sequence[Any], sizes: Sequence[int], *, deadline: float
    ) -> None:
        """`key` says how: items of jobs with equal keys share a call. `sizes` are their tokens,
        `deadline` a time of time.monotonic()."""
        assert len(items) == len(sizes) > 0
        self.key, self.items, self.sizes, self.deadline = key, items, sizes, deadline
        self.future: Future[list[Any]] = Future()
        self.results: list[Any] = []
        self.taken = 0
        self.came = time.monotonic()

    @property
    def tokens_left(self) -> int:
        return sum(self.sizes[len(self.results) :])


class Scheduler:
    """A queue and the thread that computes."""

    def __init__(
        self,
        compute: Compute,
        *,
        batch_tokens: int,
        queue_tokens: int,
        on_tick: Callable[[Tick], None] = lambda tick: None,
    ) -> None:
        self._compute, self._on_tick = compute, on_tick
        self.batch_tokens, self.queue_tokens = batch_tokens, queue_tokens
        self._jobs: deque[Job] = deque()
        self._waiting_tokens = 0
        self._speed = 0.0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="litebert-compute")
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Accept a job; its future will have the results. QueueFullError where too much waits; a
        job of any size is accepted while less than the limit waits."""
        with self._changed:
            if self._stopping or self._waiting_tokens >= self.queue_tokens:
                raise QueueFullError
            self._jobs.append(job)
            self._waiting_tokens += sum(job.sizes)
            self._changed.notify()

    @property
    def is_full(self) -> bool:
        return self._waiting_tokens >= self.queue_tokens

    @property
    def sizes(self) -> QueueSizes:
        return QueueSizes(len(self._jobs), self._waiting_tokens)

    @property
    def waiting_seconds(self) -> float:
        """How long the queue would take at the present speed; 1 where that is not known."""
        return self._waiting_tokens / self._speed if self._speed else 1.0

    def stop(self) -> None:
        """Finish what was accepted and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._drop()
                while not self._jobs and not self._stopping:
                    self._changed.wait()
                if not self._jobs:
                    return
                taken = self._take()
            if taken:
                self._run(taken)

    def _drop(self) -> None:
        """Forget jobs whose client has gone or whose time is over."""
        now = time.monotonic()
        for job in list(self._jobs):
            if job.future.cancelled() or job.deadline <= now:
                self._finish(job, DeadlineError())

    def _take(self) -> list[tuple[Job, int]]:
        """The next items: one of each job with the first one's key, in turn, within the budget."""
        self._drop()
        if not self._jobs:
            return []
        key = self._jobs[0].key
        sharing = [job for job in self._jobs if job.key == key]
        taken: list[tuple[Job, int]] = []
        budget = self.batch_tokens
        open_jobs = sharing
        while open_jobs:
            for job in open_jobs:
                size = job.sizes[job.taken]
                if taken and size > budget:
                    open_jobs = []
                    break
                budget -= size
                taken.append((job, job.taken))
                job.taken += 1
            open_jobs = [job for job in open_jobs if job.taken < len(job.items)]
        served = {id(job) for job, _ in taken}
        # who was served goes behind who was not
        self._jobs = deque(
            [job for job in self._jobs if id(job) not in served]
            + [job for job in self._jobs if id(job) in served]
        )
        return taken

    def _run(self, taken: list[tuple[Job, int]]) -> None:
        key = taken[0][0].key
        began = time.monotonic()
        try:
            results = list(self._compute(key, [job.items[number] for job, number in taken]))
            assert len(results) == len(taken)
        except Exception as error:
            jobs = list({id(job): job for job, _ in taken}.values())
            if len(jobs) == 1 or not isinstance(error, LitebertError):
                with self._changed:
                    for job in jobs:
                        self._finish(job, error)
                return
            for job in jobs:  # what one client sent fails alone
                self._run([each for each in taken if each[0] is job])
            return
        seconds = time.monotonic() - began
        tokens = sum(job.sizes[number] for job, number in taken)
        speed = tokens / max(seconds, 1e-6)
        self._speed = speed if not self._speed else 0.9 * self._speed + 0.1 * speed
        self._on_tick(Tick(key, len(taken), tokens, began - taken[0][0].came, seconds))
        with self._changed:
            for (job, number), result in zip(taken, results, strict=True):
                assert number == len(job.results)
                job.results.append(result)
                self._waiting_tokens -= job.sizes[number]
            for job in {id(job): job for job, _ in taken}.values():
                if len(job.results) == len(job.items):
                    self._finish(job, None)

    def _finish(self, job: Job, error: Exception | None) -> None:
        """Take a job out of the queue and answer it. Called with the lock held."""
        if job not in self._jobs:
            return
        self._jobs.remove(job)
        self._waiting_tokens -= job.tokens_left
        if not job.future.set_running_or_notify_cancel():
            return
        if error is None:
            job.future.set_result(job.results)
        else:
            job.future.set_exception(error)
