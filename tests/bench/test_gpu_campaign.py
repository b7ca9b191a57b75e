"""All that is measured on a GPU, in order of importance: the plan holds together, and runs at tiny
size on a CPU."""

import json
from pathlib import Path

import pytest

from bench.gpu.campaign import PLAN, Campaign, arguments, needs
from bench.gpu.cases import CASES, MEMORY, PARTS
from bench.gpu.table import GOALS
from bench.gpu.tasks import WORK
from tests.helpers.programs import run_program


def test_parts_of_both_benches_run_in_one_process(tmp_path: Path) -> None:
    words = [
        "--tiny",
        "--only",
        "memory",
        "loader",
        "tasks",
        "--out",
        str(tmp_path),
        "--seconds",
        "200",
    ]
    done = run_program("bench.gpu.campaign", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert list(dict.fromkeys(row["part"] for row in rows)) == [
        "environment",
        "memory",
        "loader",
        "tasks",
    ]
    tasks = {row["what"]: row for row in rows if row["part"] == "tasks"}
    assert tasks["epoch ours"]["epoch_seconds"] > 0
    assert tasks["ratio ours"]["×_seconds"] > 0
    assert tasks["ratio embed"]["wanted"] == 2.5
    assert "| epoch ours |" in (tmp_path / "table.md").read_text()


def test_without_time_every_part_says_that_it_was_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    campaign = Campaign(arguments(["--tiny", "--seconds", "0.001"]))
    campaign.run()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert list(dict.fromkeys(row["part"] for row in rows)) == [
        "speed",
        "memory",
        "loader",
        "tasks",
        "start",
        "largest",
    ]
    assert all("skipped" in row for row in rows)
    Campaign(
        arguments(
            ["--tiny", "--seconds", "0.001", "--only", "speed", "tasks", "--shapes", "tiny-fp8"]
        )
    ).run()
    assert {json.loads(line)["part"] for line in capsys.readouterr().out.splitlines()} == {"tasks"}


def test_the_plan_names_what_there_is() -> None:
    for part, name in PLAN:
        assert name in (WORK if part == "tasks" else MEMORY if part == "memory" else CASES)
        assert part == "tasks" or part in PARTS
    assert {name for part, name in PLAN if part == "speed"} == GOALS.keys()
    assert needs("embed ours-compiled") > needs("embed ours") > needs("ratio embed") == 0
    with pytest.raises(SystemExit):
        arguments(["--data", "somewhere"])
    options = arguments(["--data", "somewhere", "--only", "speed", "--peers", "padded"])
    assert (options.peers, options.batches, options.profile) == (["padded"], 1, True)


def test_the_step_runs_without_each_speed_up(tmp_path: Path) -> None:
    """On a CPU most of them are off anyway: the code that leaves them out runs."""
    done = run_program("bench.gpu.ablation", "--tiny", "--out", tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    ratios = {row["without"]: row["× step"] for row in rows if "× step" in row}
    assert ratios.pop("nothing") == 1
    assert {"needed", "packing", "graphs", "compile", "norm"} <= ratios.keys()
    assert "| tiny | needed |" in (tmp_path / "table.md").read_text()
