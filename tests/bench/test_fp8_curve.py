"""The bench that lays fp8's curve beside bfloat16's: it runs at tiny size on a CPU, and its
arithmetic is right."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.studies.fp8_curve import compare
from tests.helpers.programs import run_program


def test_both_arithmetics_train_on_the_same_text_and_their_curves_are_compared(
    tmp_path: Path,
) -> None:
    done = run_program("bench.studies.fp8_curve", "--out", tmp_path, "--tiny")
    assert done.returncode == 0, done.stderr + done.stdout
    record = json.loads((tmp_path / "curves.json").read_text())
    plain, fp8 = record["runs"]["bfloat16"], record["runs"]["fp8"]
    assert plain["tokens"] == fp8["tokens"]
    assert [end for end, _ in plain["curve"]] == [4, 8, 12, 16, 20]
    above = record["above_bfloat16"]["fp8"]
    assert above["curve"] == [
        [end, pytest.approx(mine - its, abs=1e-4)]
        for (end, mine), (_, its) in zip(fp8["curve"], plain["curve"], strict=True)
    ]
    assert above["last_part"] == above["curve"][-1][1]
    assert (
        0 < max(abs(loss) for _, loss in above["heldout"]) < 0.05
    )  # other numbers, and not far off
    drawn = tmp_path / "curves.svg"
    if find_spec("matplotlib") is None:  # it is an extra, which the tests do without
        assert "nothing was drawn" in done.stdout
        return
    drawn.unlink()
    assert run_program("bench.studies.fp8_curve", "--out", tmp_path, "--plot").returncode == 0
    assert drawn.read_text().startswith("<?xml")


def test_the_last_part_is_a_mean_over_its_share_of_points() -> None:
    def run(*losses: float) -> dict[str, object]:
        held = [{"step": len(losses), "masked_loss": losses[-1]}]
        return {"curve": [[end, loss] for end, loss in enumerate(losses, start=1)], "heldout": held}

    runs = {"bfloat16": run(*[3.0] * 10), "fp8": run(*[4.0] * 8, 3.1, 3.3)}
    assert compare(runs) == {
        "fp8": {
            "curve": [*([end, 1.0] for end in range(1, 9)), [9, 0.1], [10, 0.3]],
            "last_part": 0.2,
            "heldout": [[10, 0.3]],
        }
    }
