"""The pool of a study's runs, over processes that only pretend: order, limits of number, memory and
time, failures."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from litebert.errors import InterruptedRunError
from litebert.lab.pool import Command, Job, Pool, PoolLimits, minutes_of
from litebert.lab.results import LOG, RECIPE
from litebert.testing import tiny_recipe


class Pretended:
    """Runs for some polls, then ends with a code; saves (75) when it is asked to."""

    running = 0
    most = 0

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self.polls, self.code, self.log = int(words[1]), int(words[2]), log
        self.terminated = self.ended = False
        Pretended.running += 1
        Pretended.most = max(Pretended.most, Pretended.running)

    def poll(self) -> int | None:
        self.polls -= 1
        if self.polls > 0:
            return None
        if not self.ended:
            self.ended = True
            Pretended.running -= 1
            if self.code:
                self.log.write_text("some lines\nlitebert pretrain: no such thing\n")
        return 75 if self.terminated else self.code

    def terminate(self) -> None:
        self.terminated, self.polls = True, 0

    def kill(self) -> None:
        raise AssertionError("nothing has to be killed")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litebert.lab.pool._POLL_SECONDS", 0.001)
    Pretended.running = Pretended.most = 0


def job(folder: Path, name: str, *, polls: int = 2, code: int = 0, **settings: object) -> Job:
    (folder / name).mkdir()
    commands = [Command(["fake", str(polls), str(code)])]
    return Job("study", folder / name, commands, **settings)  # type: ignore[arg-type]


def pool(runs: list[Job], **limits: float) -> Pool:
    lines: list[str] = []
    rates = {"study": limits.pop("rate")} if "rate" in limits else None
    made = Pool(
        runs,
        lambda words, output, log: Pretended(words, log),
        PoolLimits(**limits),  # type: ignore[arg-type]
        lines.append,
        rates,
    )
    made.lines = lines  # type: ignore[attr-defined]
    return made


def test_a_job_waits_for_what_it_needs(tmp_path: Path) -> None:
    ended: list[str] = []

    def finish(job: Job) -> None:
        ended.append(job.folder.name)

    first = job(tmp_path, "first", polls=9, finish=finish)
    second = job(tmp_path, "second", polls=1, needs=[first], finish=finish)
    other = job(tmp_path, "other", polls=1, finish=finish)
    assert pool([second, first, other], jobs=3).run() == []
    assert ended == ["other", "first", "second"]


def test_a_failure_is_told_and_ends_only_what_needs_it(tmp_path: Path) -> None:
    broken = job(tmp_path, "broken", code=2)
    after = job(tmp_path, "after", needs=[broken])
    fine = job(tmp_path, "fine")
    failures = pool([broken, after, fine]).run()
    assert failures == [
        "study/broken: litebert pretrain: no such thing",
        "study/after: it needs study/broken, which failed",
    ]
    assert fine.is_done


def test_a_signal_is_told_as_the_reason(tmp_path: Path) -> None:
    assert pool([job(tmp_path, "one", code=-9)]).run() == [
        "study/one: it was ended by signal 9, as where memory is short"
    ]


def test_an_error_in_a_jobs_own_files_ends_that_job_alone(tmp_path: Path) -> None:
    def broken(job: Job) -> None:
        raise ValueError("not enough values")

    def unknown() -> list[str]:
        raise KeyError("tokens_per_second")

    first = job(tmp_path, "first", polls=1, finish=broken)
    second, third = job(tmp_path, "second"), job(tmp_path, "third", polls=9)
    second.commands[0].arguments = unknown
    assert pool([first, second, third], jobs=3).run() == [
        "study/second: KeyError: 'tokens_per_second'",
        "study/first: ValueError: not enough values",
    ]
    assert third.is_done


def test_arguments_of_a_command_are_known_when_it_starts(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    one = job(tmp_path, "one")
    one.commands.append(Command(["fake", "1", "0"], arguments=lambda: ["--tokens", "7"]))

    def launch(words: Sequence[str], output: Path, log: Path) -> Pretended:
        seen.append(list(words))
        return Pretended(words, log)

    Pool([one], launch, PoolLimits(), lambda line: None).run()
    assert seen == [["fake", "2", "0"], ["fake", "1", "0", "--tokens", "7"]]


@pytest.mark.parametrize(("memory", "most"), [(100.0, 3), (20.0, 2), (5.0, 1)])
def test_jobs_share_memory(tmp_path: Path, memory: float, most: int) -> None:
    jobs = [job(tmp_path, str(number), polls=5, memory=10.0) for number in range(6)]
    assert pool(jobs, jobs=3, memory=memory).run() == []
    assert Pretended.most == most


def test_timed_jobs_run_alone(tmp_path: Path) -> None:
    jobs = [job(tmp_path, str(number), polls=5, is_alone=True) for number in range(3)]
    assert pool(jobs, jobs=3).run() == []
    assert Pretended.most == 1
    beside = [job(tmp_path, f"beside {number}", polls=5) for number in range(2)]
    timed = job(tmp_path, "timed", polls=5, is_alone=True)
    assert pool([beside[0], timed, beside[1]], jobs=3).run() == []
    assert Pretended.most == 2
    assert [each.is_shared for each in (*jobs, timed, *beside)] == [False] * 4 + [True] * 2


def test_no_job_starts_that_would_not_end_in_time(tmp_path: Path) -> None:
    short, long = job(tmp_path, "short", cost=1.0), job(tmp_path, "long", cost=50.0)
    runs = pool([long, short], jobs=1, minutes=1.0, rate=1.0)
    runs.began -= 15  # a quarter of the minute is over
    with pytest.raises(InterruptedRunError, match="1 of 2 runs have ended, the next one needs"):
        runs.run()
    assert short.is_done
    assert long.process is None


def test_a_job_of_a_set_time_is_expected_to_take_it(tmp_path: Path) -> None:
    one = job(tmp_path, "one", cost=1.0, set_seconds=50.0)
    runs = pool([one], minutes=1.0, rate=1.0)
    runs.began -= 15
    with pytest.raises(InterruptedRunError, match="the next one needs about 50 s"):
        runs.run()


def test_a_job_longer_than_the_limit_begins_with_a_fresh_limit(tmp_path: Path) -> None:
    long = job(tmp_path, "long", cost=500.0)
    assert pool([long], minutes=1.0, rate=1.0).run() == []


def test_what_runs_at_the_end_of_the_limit_is_saved(tmp_path: Path) -> None:
    one = job(tmp_path, "one", polls=10**9)
    runs = pool([one], minutes=0.0005)
    with pytest.raises(InterruptedRunError, match="0 of 1 runs have ended, the time limit was r"):
        runs.run()
    assert one.process is not None
    assert one.process.poll() == 75


def test_an_interrupted_command_interrupts_the_study(tmp_path: Path) -> None:
    with pytest.raises(InterruptedRunError, match="study/one was interrupted; the same command"):
        pool([job(tmp_path, "one", code=75)]).run()


def write_progress(folder: Path, percent: int) -> None:
    (folder / RECIPE).write_text(tiny_recipe(steps=100).to_json())
    (folder / "pretrain").mkdir(exist_ok=True)
    record = {"kind": "step", "step": percent}
    (folder / "pretrain" / "metrics.jsonl").write_text(json.dumps(record) + "\n")


def test_progress_is_told_from_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litebert.lab.pool._REPORT_SECONDS", 0.0)
    one = job(tmp_path, "one", polls=5, cost=1e9)
    write_progress(one.folder, 50)
    runs = pool([one])
    runs.run()
    assert any(line.endswith("study/one 50 %") for line in runs.lines)  # type: ignore[attr-defined]
    assert not (one.folder / LOG).exists()  # of this call nothing is measured yet


def test_time_left_is_that_of_this_calls_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half was done before; 10 seconds for the next quarter leave 10 for the last."""
    monkeypatch.setattr("litebert.lab.pool._REPORT_SECONDS", 0.0)
    one = job(tmp_path, "one", cost=1e9)
    one.commands.append(Command(["fake", "9", "0"], output="rte.txt"))
    write_progress(one.folder, 50)
    steps = iter((75, 99))

    def launch(words: Sequence[str], output: Path, log: Path) -> Pretended:
        write_progress(one.folder, percent := next(steps))
        if percent == 99:  # metrics need not have the last step
            (one.folder / "pretrain" / "final").mkdir()
        return Pretended(words, log)

    runs = pool([one])
    runs.launch, runs.began = launch, runs.began - 10
    runs.run()
    lines = "\n".join(runs.lines)  # type: ignore[attr-defined]
    assert "study/one 75 %, about 10 s left" in lines
    assert "study/one rte" in lines


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(45, "45 s"), (600, "10 min"), (7200, "2.0 h"), (864_000, "10 days"), (1e9, "32 years")],
)
def test_durations(seconds: float, text: str) -> None:
    assert minutes_of(seconds) == text
