"""The newest valid snapshot wins, whatever happened to the others: kills, damage, a full disk,
pruning."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from litebert.errors import CheckpointError
from litebert.storage import snapshot as module
from litebert.storage.snapshot import Snapshot, SnapshotStore

ROOT = Path(__file__).parents[2]


def make(step: int, size: int = 100) -> Snapshot:
    model = {"weight": torch.full((size,), float(step))}
    return Snapshot(
        step=step,
        epoch=0,
        index=step,
        recipe="r",
        model=model,
        optimizer={"state": {}, "param_groups": []},
    )


def filled(folder: Path, steps: range, keep: int = 10) -> tuple[SnapshotStore, list[str]]:
    reports: list[str] = []
    result = SnapshotStore(folder, keep=keep, report=reports.append)
    for step in steps:
        assert result.save(make(step)) is not None
    return result, reports


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def corrupt(path: Path) -> None:
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")


def latest_step(snapshots: SnapshotStore) -> int | None:
    snapshot = snapshots.latest()
    return None if snapshot is None else snapshot.step


def test_newest_wins_and_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert latest_step(SnapshotStore(tmp_path / "absent")) is None
    snapshots, reports = filled(tmp_path, range(3))
    assert latest_step(snapshots) == 2
    assert not reports


def test_order_is_by_number_beyond_eight_digits(tmp_path: Path) -> None:
    snapshots, _ = filled(tmp_path, range(1))
    snapshots.save(make(10**9))
    snapshots.save(make(99_999_999))
    assert latest_step(snapshots) == 10**9


def test_bad_ones_are_set_aside_and_reported(tmp_path: Path) -> None:
    snapshots, reports = filled(tmp_path, range(3))
    corrupt(tmp_path / "step-00000002")
    corrupt(tmp_path / "step-00000001")
    assert latest_step(snapshots) == 0
    assert names(tmp_path) == ["step-00000000", "step-00000001.bad", "step-00000002.bad"]
    assert len(reports) == 2
    assert "kept as step-00000002.bad" in reports[0]
    assert "model.safetensors does not have the sha256" in reports[0]
    snapshots.save(make(2))
    corrupt(tmp_path / "step-00000002")
    assert latest_step(snapshots) == 0
    assert "step-00000002.bad-2" in names(tmp_path)


def test_a_reader_that_is_not_the_owner_changes_nothing(tmp_path: Path) -> None:
    snapshots, reports = filled(tmp_path, range(2))
    corrupt(tmp_path / "step-00000001")
    snapshot = snapshots.latest(set_aside=False)
    assert snapshot is not None
    assert snapshot.step == 0
    assert names(tmp_path) == ["step-00000000", "step-00000001"]
    assert len(reports) == 1


def test_saving_the_same_step_again_replaces_it(tmp_path: Path) -> None:
    snapshots, _ = filled(tmp_path, range(1))
    snapshots.save(make(0, size=7))
    snapshot = snapshots.latest()
    assert snapshot is not None
    assert snapshot.model["weight"].shape == (7,)
    assert names(tmp_path) == ["step-00000000"]


@pytest.mark.parametrize("keep", [1, 3])
def test_old_ones_are_removed(tmp_path: Path, keep: int) -> None:
    filled(tmp_path, range(6), keep=keep)
    assert names(tmp_path) == [f"step-{step:08d}" for step in range(6 - keep, 6)]


def test_the_last_valid_one_is_never_removed(tmp_path: Path) -> None:
    snapshots, _ = filled(tmp_path, range(5))
    for step in (2, 3, 4):
        corrupt(tmp_path / f"step-{step:08d}")
    snapshots.keep = 2
    snapshots.prune()
    assert names(tmp_path) == ["step-00000001", "step-00000003", "step-00000004"]
    assert latest_step(snapshots) == 1


def test_leftovers_of_a_killed_process_are_cleared_by_the_next_save(tmp_path: Path) -> None:
    snapshots, _ = filled(tmp_path, range(1))
    (tmp_path / ".step-00000001.tmp-abcd").mkdir()
    assert latest_step(snapshots) == 0
    snapshots.save(make(1))
    assert names(tmp_path) == ["step-00000000", "step-00000001"]


def test_too_little_space_is_seen_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots, reports = filled(tmp_path, range(2))
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000))
    monkeypatch.setattr(module, "write_folder", lambda *args, **kwargs: pytest.fail("wrote"))
    assert snapshots.save(make(2)) is None
    assert "no snapshot of step 2" in reports[0]
    assert "1.0 MB are free" in reports[0]
    assert "last good snapshot is step-00000001" in reports[0]
    assert latest_step(snapshots) == 1


@pytest.mark.parametrize(
    "target",
    [
        "litebert.storage.checkpoint.save_file",
        "json.dumps",
        "litebert.files._manifest_bytes",
        "os.fsync",
    ],
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_while_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, number: int
) -> None:
    snapshots, reports = filled(tmp_path, range(2))

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(target, full)
        assert snapshots.save(make(2)) is None
    assert "the disk of" in reports[0]
    assert names(tmp_path) == ["step-00000000", "step-00000001"]
    assert latest_step(snapshots) == 1
    assert snapshots.save(make(3)) is not None  # space again, and the run has gone on


def test_other_errors_of_the_system_are_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots, _ = filled(tmp_path, range(1))

    def broken(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(
        CheckpointError, match=r"snapshot of step 1 could not be written: .*Input/output error"
    ):
        snapshots.save(make(1))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.system
@pytest.mark.parametrize("checked", [True, False], ids=["seen before", "met while writing"])
def test_twenty_saves_on_a_full_disk(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, checked: bool
) -> None:
    snapshots, reports = filled(small_disk, range(2), keep=2)
    (small_disk / "ballast").write_bytes(bytes(5 * 2**20))
    if not checked:
        monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=2**40))
    for trial in range(20):
        assert snapshots.save(make(2 + trial, size=10**6)) is None
        assert latest_step(snapshots) == 1
    assert len(reports) == 20
    (small_disk / "ballast").unlink()
    assert snapshots.save(make(50, size=10**6)) is not None
    assert latest_step(snapshots) == 50
    assert shutil.disk_usage(small_disk).free > 0
