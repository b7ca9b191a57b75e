"""Campaigns of torture/ with few trials: their exit codes are the law."""

import json
from pathlib import Path

from tests.helpers.programs import run_program


def test_kills_and_damage_of_snapshots(tmp_path: Path) -> None:
    sizes = ["--kills", "10", "--flips", "20", "--truncations", "10", "--size", "100000"]
    done = run_program("torture.snapshot", *sizes, TMPDIR=str(tmp_path), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["sigkill"]["kills"] == 10
