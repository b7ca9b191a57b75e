"""Campaigns of torture/ with few trials: their exit codes are the law."""

import json
from pathlib import Path

from tests.helpers.programs import run_program


def test_kills_and_damage_of_snapshots(tmp_path: Path) -> None:
    sizes = ["--kills", "10", "--flips", "20", "--truncations", "10", "--size", "100000"]
    done = run_program("torture.snapshot", *sizes, TMPDIR=str(tmp_path), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["sigkill"]["kills"] == 10


def test_damage_of_shards_checkpoints_configs_and_headers(tmp_path: Path) -> None:
    sizes = ["--shards", "9", "--checkpoints", "5", "--configs", "60", "--headers", "60"]
    done = run_program("torture.damage", *sizes, TMPDIR=str(tmp_path), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout)
    assert counts["checkpoints"] == counts["checkpoints_without_manifest"] == {"refused": 5}
    assert min(sum(counts[name].values()) for name in ("configs", "headers")) == 60


def test_signals_at_any_moment_of_several_commands(tmp_path: Path) -> None:
    done = run_program("torture.signals", "--signals", "9", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert 75 in {int(code) for codes in _codes(done.stdout) for code in codes}


def test_kills_at_any_fsync_of_a_command(tmp_path: Path) -> None:
    moments = ["--most", "3", "--only", "data build"]
    done = run_program("torture.points", *moments, TMPDIR=str(tmp_path), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["moments"] == {"data build": 3}


def _codes(printed: str) -> list[dict[str, int]]:
    return list(json.loads(printed)["exit_codes"].values())
