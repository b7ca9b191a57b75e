"""Results come from a commit, and say how they were made."""

import json
import sys
from pathlib import Path

import pytest

from bench.common import results
from bench.common.tables import markdown
from bench.common.timing import in_turns, ratios


def test_a_dirty_tree_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "uncommitted", lambda: ["src/litebert/cli.py"])
    out = tmp_path / "results" / "study" / "speed.json"
    with pytest.raises(SystemExit, match=r"commit or stash first: src/litebert/cli\.py"):
        results.begin(out)
    assert not out.parent.exists()
    results.begin(tmp_path / "elsewhere.json")
    results.begin(None)
    monkeypatch.setattr(results, "uncommitted", list)
    results.begin(out)
    assert out.parent.exists()


def test_the_record_has_command_revision_and_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ignored", "--rounds", "3"])
    for out, place in (("speed.json", "speed.run.json"), ("study", "study/run.json")):
        results.begin(tmp_path / out, threads=1)
        record = json.loads((tmp_path / place).read_text())
        assert record["command"].endswith(" --rounds 3")
        assert record["threads"] == 1
        assert {"revision", "python", "packages", "cores"} <= record.keys()
    results.publish({"ratio": 2.0}, tmp_path / "speed.json")
    assert json.loads((tmp_path / "speed.json").read_text()) == {"ratio": 2.0}
    assert json.loads(capsys.readouterr().out) == {"ratio": 2.0}


def test_changes_of_results_themselves_do_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import subprocess

    def git(*words: str) -> None:
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *author, *words], check=True, capture_output=True)

    git("init")
    (tmp_path / "code.py").write_text("1\n")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "new.json").write_text("{}")
    assert results.uncommitted() == []
    (tmp_path / "code.py").write_text("2\n")
    assert results.uncommitted() == ["code.py"]


def test_contenders_take_turns() -> None:
    order: list[str] = []
    times = in_turns({name: lambda name=name: order.append(name) for name in "ab"}, rounds=3)
    assert order == list("ababab")
    assert len(times["a"].clock) == 3
    assert times["a"].seconds >= 0
    assert len(ratios(times["b"], times["b"])) == 3


def test_a_table_in_markdown() -> None:
    assert markdown(["a", "b"], [[1, "x"]]) == "| a | b |\n| --- | --- |\n| 1 | x |\n"
