"""The comparison of positions runs on a CPU too, and says what it found."""

import json
from pathlib import Path

import pytest

from bench.gpu import rotary


def test_both_kinds_of_positions_take_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rotary.main(["--tiny", "--repeats", "2", "--out", str(tmp_path)]) == 0
    (row,) = json.loads((tmp_path / "rotary.json").read_text())
    assert json.loads(capsys.readouterr().out) == [row]
    assert (tmp_path / "run.json").exists()
    assert len(row["learned_ms"]) == len(row["rotary_ms"]) == 2
    assert row["ratio_range"][0] <= row["ratio_median"] <= row["ratio_range"][1]
    assert row["learned_gradient"]["ours"] != row["rotary_gradient"]["ours"]


def test_a_wrong_gradient_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = {"ours": 0.1, "plain": 0.1}, {"ours": 0.5, "plain": 0.1}
    row = {"learned_gradient": right, "rotary_gradient": wrong}
    monkeypatch.setattr(rotary, "compare", lambda name, args: row)
    assert rotary.main(["--tiny"]) == 1
    monkeypatch.setitem(row, "rotary_gradient", right)
    assert rotary.main(["--tiny"]) == 0
