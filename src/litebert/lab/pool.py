"""The runs of one or several studies, some at a time: jobs in; finished jobs and failures out.

A job is a queue of commands in one folder. It starts when the jobs that it needs are done, when
its memory is there, and, with a time limit, when it is expected to end in time. A job that fails is
reported while the others continue.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from litebert.errors import InterruptedRunError, LitebertError
from litebert.lab.results import LOG, OUTPUT, PRETRAINED, RECIPE
from litebert.lab.runners import Launch, Process
from litebert.recipes import PretrainRecipe

_POLL_SECONDS, _REPORT_SECONDS = 0.1, 30.0
_INTERRUPTED = 75
_GRACE_SECONDS, _GRACE_SHARE = 20.0, 0.1
"""Before the end of a time limit: what running jobs have to save."""
_MARGIN = 1.1
"""Factor on the expected time of a job."""
_FAILURES = (LitebertError, OSError, ValueError, KeyError, TypeError)
"""What a job's own files and numbers can raise: it fails, the others continue."""

Say = Callable[[str], None]


@dataclass
class Command:
    """A Python module with its arguments."""

    words: list[str]
    output: str = OUTPUT
    """File in the job's folder for what it prints."""
    arguments: Callable[[], list[str]] = list
    """Further arguments, which are known once the commands before it have ended."""


@dataclass
class Job:
    """One row with one seed: a queue of commands in one folder."""

    study: str
    folder: Path
    commands: list[Command]
    finish: Callable[["Job"], None] = lambda job: None
    """Called after the last command."""
    cost: float = 1.0
    """FLOPs of its pretraining: what its time is estimated by."""
    set_seconds: float | None = None
    """Of its pretraining, where the study gives it its time."""
    memory: float = 0.0
    """Bytes on the device, estimated."""
    needs: list["Job"] = field(default_factory=list)
    is_alone: bool = False
    """Whether nothing else may run beside it, because it is timed."""
    is_shared: bool = False
    """Whether another job ran beside it, so that its seconds do not compare."""
    process: Process | None = None
    began: float = 0.0
    fraction_before: float = 0.0
    """Of its pretraining, done by an earlier call."""
    seconds: float = 0.0
    """From its start to its end; 0 where it resumed an earlier one, whose time is unknown."""
    is_resumed: bool = False
    is_done: bool = False
    error: str | None = None

    @property
    def name(self) -> str:
        return f"{self.study}/{self.folder.name}"


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """What a pool may use."""

    jobs: int = 1
    """At a time."""
    memory: float = float("inf")
    """Bytes of the device, for all of them."""
    minutes: float | None = None


class Pool:
    """Runs jobs; `seconds_per_flop` by study are known from earlier runs."""

    def __init__(
        self,
        jobs: Iterable[Job],
        launch: Launch,
        limits: PoolLimits,
        say: Say,
        seconds_per_flop: Mapping[str, float] | None = None,
    ) -> None:
        self.jobs, self.launch, self.limits, self.say = list(jobs), launch, limits, say
        self.waiting, self.running = list(self.jobs), list[Job]()
        self.done: list[Job] = []
        self.known = dict(seconds_per_flop or {})
        self.began = self.reported = time.monotonic()

    def run(self) -> list[str]:
        """Run all; a line for each job that failed.

        Raises:
            InterruptedRunError: The time limit was reached, or a command was interrupted.
        """
        at_a_time = f", {self.limits.jobs} at a time" if self.limits.jobs > 1 else ""
        self.say(f"{len(self.jobs)} runs to do{at_a_time}")
        try:
            while self.waiting or self.running:
                self._start_some()
                if not self.running:
                    self._give_up()
                time.sleep(_POLL_SECONDS)
                for job in list(self.running):
                    self._advance(job)
                if self.running and self._left() <= 0:
                    raise InterruptedRunError(self._so_far("the time limit was reached"))
                self._report()
        except BaseException:
            self._stop_all()
            raise
        return [f"{job.name}: {job.error}" for job in self.done if job.error]

    def _start_some(self) -> None:
        for job in list(self.waiting):
            failed = [other for other in job.needs if other.error]
            if failed:
                self.waiting.remove(job)
                self._end(job, error=f"it needs {failed[0].name}, which failed")
                continue
            ready = all(other.is_done for other in job.needs)
            if ready and len(self.running) < self.limits.jobs and self._fits(job):
                self.waiting.remove(job)
                self.running.append(job)
                for each in self.running if len(self.running) > 1 else ():
                    each.is_shared = True
                job.began = time.monotonic()
                job.fraction_before = _fraction_done(job.folder)
                job.is_resumed = (job.folder / PRETRAINED).exists()
                try:
                    self._start(job)
                except _FAILURES as error:
                    self.running.remove(job)
                    self._end(job, error=_message(error))

    def _fits(self, job: Job) -> bool:
        if any(job.is_alone or other.is_alone for other in self.running):
            return False
        used = sum(other.memory for other in self.running)
        if self.running and used + job.memory > self.limits.memory:
            return False
        if self.limits.minutes is None:
            return True
        expected, limit = self._expected(job), 60 * self.limits.minutes
        if expected is None:  # nothing is known yet
            return self._left() > limit / 2
        fresh = time.monotonic() - self.began < limit / 10
        return _MARGIN * expected <= self._left() or (expected > limit and fresh)

    def _expected(self, job: Job) -> float | None:
        """Seconds that a job will take; None where no run was measured."""
        if job.set_seconds is not None:
            return job.set_seconds * (1 - _fraction_done(job.folder))
        rates = self.known or self._rates_now()
        if not rates:
            return None
        rate = rates.get(job.study, max(rates.values()))
        return rate * job.cost * (1 - _fraction_done(job.folder))

    def _rates_now(self) -> dict[str, float]:
        """Seconds per FLOP of jobs under way."""
        rates = {}
        for job in self.running:
            fraction = _fraction_done(job.folder) - job.fraction_before
            if fraction > 0.02:
                rates[job.study] = (time.monotonic() - job.began) / (fraction * job.cost)
        return rates

    def _left(self) -> float:
        """Seconds until running jobs are asked to save and end."""
        if self.limits.minutes is None:
            return float("inf")
        limit = 60 * self.limits.minutes
        grace = min(_GRACE_SECONDS, _GRACE_SHARE * limit)
        return limit - grace - (time.monotonic() - self.began)

    def _give_up(self) -> None:
        """No job runs, and those that wait cannot start."""
        if self.waiting:
            expected = [self._expected(job) for job in self.waiting]
            shortest = min((each for each in expected if each is not None), default=0.0)
            needed = f"the next one needs about {minutes_of(shortest)}"
            raise InterruptedRunError(self._so_far(needed if shortest else "time is nearly over"))

    def _so_far(self, why: str) -> str:
        return (
            f"{len(self.done)} of {len(self.jobs)} runs have ended, {why}; the same command "
            "resumes them"
        )

    def _start(self, job: Job) -> None:
        command = job.commands[0]
        words = [*command.words, *command.arguments()]
        job.process = self.launch(words, job.folder / command.output, job.folder / LOG)

    def _advance(self, job: Job) -> None:
        """Start a job's next command where one has ended; its result after the last."""
        assert job.process is not None
        code = job.process.poll()
        if code is None:
            return
        if code == _INTERRUPTED:
            raise InterruptedRunError(f"{job.name} was interrupted; the same command resumes")
        try:
            if code == 0:
                job.commands.pop(0)
                if job.commands:
                    self._start(job)
                    return
                job.seconds = 0.0 if job.is_resumed else time.monotonic() - job.began
                job.finish(job)
            error = None if code == 0 else _last_line(job.folder, code)
        except _FAILURES as raised:
            error = _message(raised)
        self.running.remove(job)
        self._end(job, error=error)

    def _end(self, job: Job, *, error: str | None) -> None:
        job.error, job.is_done = error, error is None
        self.done.append(job)
        if error is None and job.seconds and job.cost > 1 and job.set_seconds is None:
            self.known[job.study] = job.seconds / job.cost
        verdict = f"failed: {error}" if error else "finished"
        self.say(f"{len(self.done)} of {len(self.jobs)}: {job.name} {verdict}")

    def _stop_all(self) -> None:
        """Let processes save and end; kill those that do not."""
        processes = [job.process for job in self.running if job.process is not None]
        for process in processes:
            process.terminate()
        patience = None if self.limits.minutes is None else time.monotonic() + 2 * _GRACE_SECONDS
        while any(process.poll() is None for process in processes):
            if patience is not None and time.monotonic() > patience:
                for process in processes:
                    if process.poll() is None:
                        process.kill()
                return
            time.sleep(_POLL_SECONDS)

    def _report(self) -> None:
        if time.monotonic() - self.reported > _REPORT_SECONDS and self.running:
            self.reported = time.monotonic()
            self.say(_progress(self.jobs, self.done, self.running, self.reported - self.began))


def _fraction_done(folder: Path) -> float:
    """How much of its pretraining a run has done."""
    if (folder / PRETRAINED / "final").exists():
        return 1.0
    try:
        lines = (folder / PRETRAINED / "metrics.jsonl").read_text().splitlines()
        step = next(r["step"] for r in map(json.loads, reversed(lines)) if r["kind"] == "step")
        own = folder / PRETRAINED / RECIPE
        recipe = PretrainRecipe.load(own if own.exists() else folder / RECIPE)
        return min(float(step) / recipe.total_steps, 1.0)
    except (OSError, ValueError, KeyError, StopIteration, LitebertError):
        return 0.0


def minutes_of(seconds: float) -> str:
    """A duration for a person."""
    if seconds >= 2 * 365 * 86_400:
        return f"{seconds / (365 * 86_400):,.0f} years"
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:,.0f} days"
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _progress(
    jobs: Sequence[Job], done: Sequence[Job], running: Sequence[Job], seconds: float
) -> str:
    parts = {id(job): _fraction_done(job.folder) for job in running}
    total = sum(job.cost for job in jobs)
    spent = sum(job.cost for job in done) + sum(job.cost * parts[id(job)] for job in running)
    gained = spent - sum(job.cost * job.fraction_before for job in (*done, *running))
    left = f", about {minutes_of(seconds * (total - spent) / gained)} left" if gained > 0 else ""
    now = ", ".join(f"{job.name} {_doing(job, parts[id(job)])}" for job in running)
    return f"{len(done)} of {len(jobs)} runs finished; {now}{left}"


def _doing(job: Job, fraction: float) -> str:
    """How much of its pretraining is done; then what is measured, or the task."""
    return f"{100 * fraction:.0f} %" if fraction < 1 else Path(job.commands[0].output).stem


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, LitebertError) else f"{type(error).__name__}: {error}"


def _last_line(folder: Path, code: int) -> str:
    if code < 0:  # the last line is of its progress
        return f"it was ended by signal {-code}" + (", as where memory is short" * (code == -9))
    lines = (folder / LOG).read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else f"exit code {code}"
