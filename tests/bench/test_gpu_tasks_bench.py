"""The GPU's bench of tasks runs, at tiny size on a CPU: its checks hold, and every part says what
it found."""

import json

from tests.helpers.programs import run_program


def lines(*flags: str) -> dict[str, dict[str, object]]:
    small = ["--tiny", "--rounds", "1", "--batch-size", "8"]
    done = run_program("bench.gpu.tasks", *small, *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return {record["what"]: record for record in records}


def test_all_parts_run_and_the_checks_hold() -> None:
    actual = lines()
    assert [name for name, record in actual.items() if "failed" in record] == []
    assert actual["check gradient"]["ok"]
    assert actual["check vectors"]["ok"]
    assert actual["epoch ours"]["steps"] == actual["epoch theirs"]["steps"] == 3
    assert actual["epoch ours"]["is_scaled"]
    assert {"ratio ours", "ratio embed"} <= actual.keys()


def test_parts_and_ways_can_be_chosen() -> None:
    assert list(lines("--parts", "embed", "--ways", "ours")) == ["about", "embed ours"]
