"""The report of a run with exits: a curve for each criterion, the calibrated thresholds, and
nothing that a damaged result.json could break."""

import json
from pathlib import Path
from typing import Any

import pytest

from litebert import cli
from litebert.report.run import RESULT
from tests.helpers.predictions import made
from tests.report.test_report import Reader
from tests.report.test_report_dev import page_of, tuned_run

NUMBERS = {
    "threshold": 0.97,
    "dev_mean_depth": 1.75,
    "dev_score": 0.812,
    "dev_lost": 0.013,
    "dev_lost_interval": [-0.01, 0.031],
    "bound": 0.0042,
}
CURVE = [
    {"threshold": 0.99, "mean_depth": 2.5, "score": 0.83},
    {"threshold": 0.5, "mean_depth": 1.0, "score": 0.7},
]


def run_with(folder: Path, **result: Any) -> Path:
    task, examples, predictions = made("classify")
    tuned_run(folder, task, examples, predictions)
    (folder / RESULT).write_text(json.dumps(result))
    return folder


def test_criteria_are_drawn_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = [{"accuracy": 0.7}, {"accuracy": 0.8}, {"accuracy": 0.83}]
    result = {
        "depth_scores": scores,
        "exits": {"confidence": NUMBERS},
        "exit_curves": {"confidence": CURVE, "patience": CURVE[:1]},
    }
    folder = run_with(tmp_path / "run", **result)
    page = page_of(folder)
    words = Reader(page).words
    for shown in (
        "Early exit",
        "accuracy by mean depth",
        "a fixed depth",
        "confidence",
        "patience",
    ):
        assert shown in words
    for shown in ("0.97", "1.75", "81.2", "1.3", "-1.0 – 3.1", "0.42 %"):
        assert shown in words
    # 0.7 to 0.83 with a twentieth of room above and below, in a drawing of 2000 by 1000
    assert 'd="M667 955l1000 -910"' in page
    assert cli.run(["report", str(folder), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["runs"]
    assert {name: told[name] for name in result} == result


TIMED: dict[str, Any] = {
    "score_name": "accuracy",
    "score": 0.83,
    "seconds": 4.0,
    "curves": {
        "confidence": [
            {"mean_depth": 2.5, "score": 0.83, "seconds": 3.0},
            {"mean_depth": 1.0, "score": 0.7, "seconds": 1.0},
        ]
    },
}


def test_measured_time_is_drawn_where_it_was_measured(tmp_path: Path) -> None:
    result = {"depth_scores": [{"accuracy": 0.7}, {"accuracy": 0.83}]}
    folder = run_with(tmp_path / "run", **result)
    assert "measured time" not in page_of(folder)
    (folder / "exits.json").write_text(json.dumps(TIMED))
    page = page_of(folder)
    words = Reader(page).words
    for shown in ("accuracy by mean depth", "accuracy by measured time", "all layers", "80 %"):
        assert shown in words
    assert 'd="M500 955l1000 -910"' in page  # from a quarter to three quarters of the time


@pytest.mark.parametrize(
    "exits",
    [
        3,
        {"seconds": 0},
        {"curves": {"x": [3]}},
        TIMED | {"seconds": None},
        TIMED | {"curves": 3},
        TIMED | {"curves": {"<b>": [{"seconds": "1"}]}},
        TIMED | {"score_name": "f1"},
    ],
)
def test_a_damaged_measurement_breaks_nothing(exits: Any, tmp_path: Path) -> None:
    folder = run_with(tmp_path / "run", depth_scores=[{"accuracy": 0.7}, {"accuracy": 0.83}])
    (folder / "exits.json").write_text(json.dumps(exits))
    assert "measured time" not in page_of(folder)


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"depth_scores": 3},
        {"depth_scores": [{"accuracy": "high"}, None]},
        {"depth_scores": [{"accuracy": 0.5}] * 2, "exits": [1], "exit_curves": {"<b>": [3, {}]}},
        {"depth_scores": [{"accuracy": 0.5}] * 2, "exits": {"x": {"threshold": None}}},
    ],
)
def test_a_damaged_result_breaks_nothing(result: dict[str, Any], tmp_path: Path) -> None:
    page = page_of(run_with(tmp_path / "run", **result))
    assert "Scores on dev" in Reader(page).words
    assert "<b>:" not in page
    assert ("No threshold was calibrated" in page) == ("exits" in result)
