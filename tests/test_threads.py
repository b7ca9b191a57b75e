"""The number of threads: a request, OMP_NUM_THREADS, the run's own, the cores that are free, in
this order; a run resumes with the number that it began with."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import litebert
from litebert import cli, threads
from litebert.errors import ConfigError
from litebert.testing import tiny_recipe, tiny_shards
from litebert.threads import Threads, choose_threads, free_cores, num_cores
from litebert.train.folder import stored_threads
from litebert.train.log import Log
from litebert.train.runtime import Runtime


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Of which the tests say how many are free; torch's own number is four, too."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "num_cores", lambda: 4)
    monkeypatch.setattr(threads, "free_cores", lambda count: 3.9)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield monkeypatch
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("free", "count"), [(3.97, 4), (3.5, 3), (1.4, 1), (1.8, 2), (0.3, 1), (0.0, 1)]
)
def test_by_default_as_many_as_cores_are_free(
    four_cores: pytest.MonkeyPatch, free: float, count: int
) -> None:
    four_cores.setattr(threads, "free_cores", lambda count: free)
    chosen = choose_threads()
    assert chosen == Threads(count, f"{free:.1f} of 4 cores are free")
    assert str(chosen).startswith(f"{count} thread{'s' if count > 1 else ''} (")


def test_a_request_wins_then_the_environment_then_the_run(
    four_cores: pytest.MonkeyPatch,
) -> None:
    assert choose_threads(stored=2) == Threads(2, "as the run began")
    assert choose_threads(stored=8).count == 4, "as many as the run began with are not here"
    assert choose_threads(stored=3, limit=2).count == 2
    assert choose_threads(limit=1) == Threads(1, "4 cores, as set before")
    four_cores.setenv("OMP_NUM_THREADS", "3,2")
    assert choose_threads(stored=2, limit=1) == Threads(3, "OMP_NUM_THREADS")
    assert choose_threads(5, stored=2, limit=1) == Threads(5, "as requested")
    for unusable in ("", "many", "0", "99999"):
        four_cores.setenv("OMP_NUM_THREADS", unusable)
        assert choose_threads(stored=2).reason == "as the run began"
    for wrong in (0, -1, 4096):
        with pytest.raises(ConfigError, match=rf"threads is a number from 1 to 1024; got {wrong}"):
            choose_threads(wrong)


def test_cores_are_counted_without_hyperthreads_and_within_quotas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert num_cores(tmp_path) == 8
    for number in range(8):
        siblings = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        siblings.parent.mkdir(parents=True)
        siblings.write_text(f"{number % 4},{number % 4 + 4}\n")
    assert num_cores(tmp_path) == 4
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/m\n3:cpu,cpuacct:/job\n0::/outer/inner\n")
    inner = tmp_path / "sys/fs/cgroup/outer/inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    assert num_cores(tmp_path) == 4
    (inner.parent / "cpu.max").write_text("250000 100000\n")
    assert num_cores(tmp_path) == 3, "of the group above, rounded up"
    old = tmp_path / "sys/fs/cgroup/cpu/job"
    old.mkdir(parents=True)
    (old / "cpu.cfs_quota_us").write_text("-1\n")
    (old / "cpu.cfs_period_us").write_text("100000\n")
    assert num_cores(tmp_path) == 3
    (old / "cpu.cfs_quota_us").write_text("150000\n")
    assert num_cores(tmp_path) == 2


def test_free_cores_are_at_most_those_that_were_tried() -> None:
    assert 0 < free_cores(1, seconds=0.01) <= 1
    assert 0 < free_cores(3, seconds=0.01) <= num_cores() + 0.5


def test_a_runtime_computes_with_the_choice_and_gives_it_back(
    four_cores: pytest.MonkeyPatch,
) -> None:
    with Runtime.joined(device="cpu", threads=3) as runtime:
        assert (torch.get_num_threads(), runtime.facts()["threads"]) == (3, 3)
    assert torch.get_num_threads() == 4
    with Runtime.joined(device="cpu", stored_threads=2) as runtime:
        assert runtime.threads == Threads(torch.get_num_threads(), "as the run began")
        assert runtime.threads.count == 2


def test_a_predictor_computes_with_its_number_and_the_process_keeps_its_own(
    four_cores: pytest.MonkeyPatch,
) -> None:
    torch.set_num_threads(2)
    model = litebert.load(device="cpu", threads=3, engine="torch")
    used: list[int] = []
    four_cores.setattr(
        model.engine.model.encoder,
        "forward",
        lambda *args, inner=model.engine.model.encoder.forward, **options: (
            used.append(torch.get_num_threads()) or inner(*args, **options)
        ),
    )
    model.fill("The capital of [MASK] is Paris.")
    model.embed("a sentence")
    assert set(used) == {3}
    assert torch.get_num_threads() == 2
    plain = litebert.load(device="cpu", engine="torch")
    assert plain.engine.threads == Threads(2, "3.9 of 4 cores are free")
    with pytest.raises(ConfigError, match="threads is a number from 1 to 1024; got 0"):
        litebert.load(device="cpu", threads=0)


def test_a_run_resumes_with_the_threads_that_it_began_with(
    four_cores: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bit for bit as a run of that number that was not interrupted; another number is named."""
    shards, recipe = tiny_shards(tmp_path), tiny_recipe(steps=9, evaluate_every=0)
    options: dict[str, Any] = {"data": shards, "device": "cpu", "workers": 0}
    full = litebert.pretrain(recipe, out=tmp_path / "whole", threads=2, **options)
    assert "computing with 2 threads (as requested)" in capfd.readouterr().err
    write = Log.write

    def broken(log: Log, kind: str, step: int, **values: Any) -> None:
        write(log, kind, step, **values)
        if (kind, step) == ("step", 5):
            raise RuntimeError("the machine went down")

    with four_cores.context() as patch:
        patch.setattr(Log, "write", broken)
        with pytest.raises(RuntimeError, match="went down"):
            litebert.pretrain(recipe, out=tmp_path / "run", threads=2, **options)
    assert stored_threads(tmp_path / "run") == 2
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    capfd.readouterr()
    run = litebert.pretrain(recipe, out=tmp_path / "run", **options)
    shown = capfd.readouterr().err
    assert "computing with 2 threads (as the run began)" in shown
    assert "not bit for bit" not in shown
    weights = [folder / "final" / "model.safetensors" for folder in (full.folder, run.folder)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    litebert.pretrain(recipe, out=tmp_path / "other", threads=1, **options)
    assert "resumes, but not bit for bit: threads 2 then, 1 now" in capfd.readouterr().err


def test_a_folder_without_a_readable_environment_stores_no_threads(tmp_path: Path) -> None:
    assert stored_threads(tmp_path) is None
    for text in ("{", "[]", '{"threads": "two"}'):
        (tmp_path / "environment.json").write_text(text)
        assert stored_threads(tmp_path) is None
    seed = tmp_path / "several" / "seed-0"
    seed.mkdir(parents=True)
    (seed / "environment.json").write_text('{"threads": 2}')
    assert stored_threads(tmp_path / "several") == 2


def test_every_command_that_computes_takes_threads(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["fill", "a [MASK]", "--device", "cpu", "--threads", "0"]) == 2
    assert "threads is a number from 1 to 1024; got 0" in capsys.readouterr().err
    assert cli.run(["fill", "a [MASK]", "--device", "cpu", "--threads", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    list_of_flags = (Path(__file__).parent / "command_line.txt").read_text()
    for command in list_of_flags.split("\nlitebert "):
        if "--device" in command and not command.startswith("lab"):  # which counts cores
            assert "--threads" in command
