"""The bench that lays fp8's curve beside bfloat16's: it runs at tiny size on a CPU, and its
arithmetic is right."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def test_both_arithmetics_train_on_the_same_text_and_their_curves_are_compared(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-W", "ignore", str(BENCH / "fp8_curve.py"), "--out", str(tmp_path)]
    done = subprocess.run([*words, "--tiny"], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads((tmp_path / "curves.json").read_text())
    plain, fp8 = found["runs"]["bfloat16"], found["runs"]["fp8"]
    assert plain["tokens"] == fp8["tokens"]
    assert [end for end, _ in plain["curve"]] == [4, 8, 12, 16, 20]
    above = found["above_bfloat16"]["fp8"]
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
    subprocess.run([*words, "--plot"], check=True, capture_output=True, timeout=100)
    assert drawn.read_text().startswith("<?xml")


def test_the_last_part_is_a_mean_over_its_share_of_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    from fp8_curve import compare  # type: ignore[import-not-found]

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
