"""A disk that really is full, on a small tmpfs; needs root, so it is for `make test-system`."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from litebert.testing import tiny_recipe
from litebert.train.finetune.run import Finetuning
from litebert.train.loop import BetweenSteps, Event
from litebert.train.pretrain.run import Pretraining
from tests.helpers.finetuning import WatchedTuning, ready, source, tune
from tests.helpers.finetuning import recipe as tuning_recipe
from tests.helpers.pretraining import CPU, Watched, essence, events, train, weights

pytestmark = pytest.mark.system
SIZE = 4 * 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


class Filler:
    """Fills a disk at one step, to the last byte or leaving a little, and frees it at another."""

    def __init__(self, draw: random.Random, disk: Path) -> None:
        self.file = disk / "filler"
        self.full_from = draw.randrange(1, 8)
        self.free_from = draw.randrange(self.full_from + 1, 12)
        self.left = draw.choice([0, 0, 4096, 100_000])

    def __call__(self, event: Event) -> None:
        if not isinstance(event, BetweenSteps):
            return
        if event.state.step == self.full_from:
            with self.file.open("wb") as file:
                free = os.statvfs(self.file).f_bavail * os.statvfs(self.file).f_frsize
                file.write(b"x" * max(free - self.left, 0))
        if event.state.step == self.free_from:
            self.file.unlink()


def run_filling(training: Pretraining | Finetuning, filler: Filler, out: Path) -> None:
    """Run while `filler` fills the disk, before anything is evaluated or saved."""
    training.run.subscribers.insert(0, filler)
    training.train(out, progress=False)


def test_twenty_full_disks_cost_no_run(shards: Path, tmp_path: Path, small_disk: Path) -> None:
    recipe = tiny_recipe(save_every=2, evaluate_every=3)
    train(recipe, shards, tmp_path / "whole")
    lost = 0
    for number in range(20):
        run = small_disk / str(number)
        filler = Filler(random.Random(number), small_disk)
        run_filling(Watched(recipe, shards, CPU), filler, run)
        lost += len(events(run))
        mine, theirs = weights(run), weights(tmp_path / "whole")
        assert all(bool((mine[name] == theirs[name]).all()) for name in theirs)
        assert [record for record in essence(run) if record["kind"] != "event"] == essence(
            tmp_path / "whole"
        )
        subprocess.run(["rm", "-r", str(run)], check=True)
    assert lost > 20  # it was full indeed


def test_twenty_full_disks_cost_no_fine_tuning(tmp_path: Path, small_disk: Path) -> None:
    """The best weights wait in memory where they must; the disk has room again before the end."""
    recipe = tuning_recipe(save_every=2, evaluations=8)
    tune(recipe, tmp_path / "whole")
    lost = 0
    for number in range(20):
        run = small_disk / str(number)
        filler = Filler(random.Random(number), small_disk)
        run_filling(WatchedTuning(recipe, ready("classify"), source(), CPU), filler, run)
        lost += len(events(run))
        mine, theirs = weights(run), weights(tmp_path / "whole")
        assert all(bool((mine[name] == theirs[name]).all()) for name in theirs)
        kept, expected = (
            [record for record in essence(each) if record["kind"] != "event"]
            for each in (run, tmp_path / "whole")
        )
        assert kept == expected
        subprocess.run(["rm", "-r", str(run)], check=True)
    assert lost > 20  # it was full indeed
