"""A study from the command line: two rows end to end in seconds, resumed, failures reported."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from litebert.cli import run as litebert
from litebert.config import EncoderConfig
from litebert.lab.estimate import probe_speed
from litebert.recipes import named
from litebert.testing import tiny_shards

STUDY = """
title = "Order or not"
measures = ["masked_loss", "sop_accuracy", "gap"]
[scales.cpu]
recipe = "demo"
seeds = 1
[scales.cpu.settings]
preset = "tiny"
steps = 4
batch_size = 4
sequence_length = 16
depth = "none"
dtype = "float32"
heldout_fraction = 0.1
evaluate_every = 2
encoder = { norm = "pre" }
[[rows]]
name = "sop"
[[rows]]
name = "no order"
start = "sop"
settings = { order = "none" }
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    tiny_shards(folder / "tiny")
    (folder / "study.toml").write_text(STUDY)
    return folder


def run(study: Path, *flags: str, file: str = "study.toml") -> int:
    common = ["--data", str(study / "tiny" / "shards"), "--out", str(study / "out")]
    device = ["--scale", "cpu", "--device", "cpu", "--workers", "0"]
    return litebert(["lab", "run", str(study / file), *common, *device, *flags])


def test_a_study_runs_is_resumed_and_becomes_a_table(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(study, "--jobs", "2") == 0
    first = {path: path.stat().st_mtime_ns for path in study.glob("out/*/result.json")}
    assert {path.parent.name for path in first} == {"sop-seed0", "no-order-seed0"}
    (study / "out" / "sop-seed0" / "result.json").unlink()
    capsys.readouterr()
    assert run(study) == 0
    assert "1 runs to do" in capsys.readouterr().err
    again = {path: path.stat().st_mtime_ns for path in study.glob("out/*/result.json")}
    kept = study / "out" / "no-order-seed0" / "result.json"
    assert again[kept] == first[kept]

    result = json.loads(kept.read_text())
    assert result["scores"]["masked_loss"] > 0
    assert "sop_accuracy" not in result["scores"]
    assert litebert(["lab", "table", str(study / "out")]) == 0
    assert "# Order or not" in capsys.readouterr().out
    assert (study / "out" / "table.md").read_text().count("\n| ") == 4
    assert litebert(["lab", "table", str(study / "out"), "--format", "csv"]) == 0


@pytest.mark.system
def test_ray_runs_a_study(study: Path) -> None:
    """A real cluster of two workers on this machine; in a process of its own, since Ray is noisy
    about warnings."""
    out = study / "ray"
    command = ["lab", "run", str(study / "study.toml"), "--scale", "cpu", "--runner", "ray"]
    paths = ["--data", str(study / "tiny" / "shards"), "--out", str(out)]
    flags = ["--device", "cpu", "--workers", "0", "--jobs", "2"]
    program = [sys.executable, "-m", "litebert.cli"]
    subprocess.run([*program, *command, *paths, *flags], check=True)
    assert len(list(out.glob("*/result.json"))) == 2
    here = study / "out"
    assert run(study) == 0
    for name in ("sop-seed0", "no-order-seed0"):
        scores = [json.loads((each / name / "result.json").read_text()) for each in (out, here)]
        ours, theirs = (each["scores"]["masked_loss"] for each in scores)
        assert ours == pytest.approx(theirs, rel=1e-5)  # other numbers of threads round otherwise


def test_paths_for_a_cluster_are_absolute(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers have working directories of their own."""
    seen: list[str] = []

    class Ended:
        def __init__(self, words: list[str], output: Path, log: Path) -> None:
            assert output.is_absolute()
            log.write_text("ended")
            seen.extend(words)

        def poll(self) -> int:
            return 1

    monkeypatch.setattr("litebert.lab.run.open_runner", lambda *_, **__: nullcontext(Ended))
    monkeypatch.chdir(study)
    paths = ["--data", "tiny/shards", "--text", "study.toml", "--out", "far"]
    assert run(Path(), *paths, "--runner", "ray") == 1
    assert [word for word in seen if word.startswith("/")] == [
        str(study / path)
        for path in ("far/sop-seed0/recipe.json", "tiny/shards", "far/sop-seed0/pretrain")
    ]
    assert not [word for word in seen if "/" in word and not word.startswith("/")]


def test_a_limit_of_time_is_resumed(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(study / "limited")]
    assert run(study, *out, "--minutes", "0.01") == 75
    assert "0 of 2 runs have ended, the time limit was reached; the same" in capsys.readouterr().err
    assert run(study, *out, "--minutes", "0") == 2
    assert "minutes is more than 0; got 0" in capsys.readouterr().err


def test_a_failed_run_is_reported_and_the_others_go_on(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = STUDY.replace('order = "none"', "heldout_fraction = 1e-9")
    (study / "broken.toml").write_text(broken.replace("steps = 4", "steps = 6"))
    code = run(study, "--out", str(study / "broken"), file="broken.toml")
    said = capsys.readouterr().err
    assert code == 1
    assert "1 runs failed; the same command tries them again: broken/no-order-seed0" in said
    assert (study / "broken" / "sop-seed0" / "result.json").exists()


def test_data_is_asked_for(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert litebert(["lab", "run", str(study / "study.toml"), "--scale", "cpu"]) == 2
    assert "name their folder with --data" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--data", "nowhere"], 3, "nowhere"),
        (["--tasks", "nowhere"], 2, "nowhere, given with --tasks, is not there"),
        (["--text", "no.txt"], 2, "no.txt, given with --text, is not there"),
        (["--tokens", "0"], 2, "tokens is at least 1; got 0"),
    ],
)
def test_what_every_run_would_fail_at_is_said_first(
    study: Path, flags: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(study, "--out", str(study / "unused"), *flags) == code
    assert message in capsys.readouterr().err


def test_several_studies_have_folders_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = '[scales.paper]\nrecipe = "paper"\n[[rows]]\nname = "base"\n'
    (tmp_path / "mine.toml").write_text('kind = "count"\nmeasures = ["smaller"]\n' + rows)
    command = ["lab", "run", "parameters", str(tmp_path / "mine.toml"), "--scale", "paper"]
    assert litebert([*command, "--out", str(tmp_path / "out")]) == 0
    for name in ("parameters-paper", "mine-paper"):
        assert litebert(["lab", "table", str(tmp_path / "out" / name)]) == 0
    assert litebert(["lab", "run", "--scale", "paper"]) == 2
    assert "name a study; litebert lab list lists them" in capsys.readouterr().err
    assert litebert(["lab", "pack", "--out", str(tmp_path / "a.tar.gz")]) == 2
    assert "name the folders of studies to pack" in capsys.readouterr().err


def test_other_settings_need_another_folder(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (study / "other.toml").write_text(STUDY.replace("steps = 4", "steps = 5"))
    out = ["--out", str(study / "claimed")]
    assert run(study, *out, "--minutes", "0.01") == 75
    capsys.readouterr()
    assert run(study, *out, file="other.toml") == 2
    assert "holds study study at scale cpu with other settings" in capsys.readouterr().err
    assert run(study, *out, "--seeds", "0") == 2
    assert "jobs and seeds are at least 1" in capsys.readouterr().err


def test_other_data_need_another_folder(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tiny_shards(study / "other", vocab_size=70)
    text, changed = study / "a.txt", study / "b.txt"
    text.write_text("the whale is here .\n")
    changed.write_text("the ship is here .\n")
    out = ["--out", str(study / "fixed")]
    assert run(study, *out, "--minutes", "0.01") == 75
    for flags, code, message in (
        (["--data", str(other)], 2, "holds runs on other shards than those of --data; choose"),
        (["--text", str(text)], 75, ""),  # the first text, from now on
        (["--text", str(changed)], 2, "holds scores on another file than that of --text"),
    ):
        capsys.readouterr()
        assert run(study, *out, *flags, "--minutes", "0.01") == code
        assert message in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    counted = ["lab", "run", "parameters", "--scale", "paper", "--out"]
    assert litebert([*counted, str(tmp_path / "study")]) == 0
    for name in ("table.md", "plot.svg"):
        (tmp_path / "study" / name).mkdir()
    for command in (
        [*counted, str(tmp_path / "file")],
        ["lab", "pack", str(tmp_path / "study"), "--out", str(tmp_path / "file")],
        ["lab", "pack", str(tmp_path / "study"), "--out", str(tmp_path / "file" / "a.tar.gz")],
        ["lab", "table", str(tmp_path / "study")],
        ["lab", "plot", str(tmp_path / "study")],
    ):
        assert litebert(command) == 2
        assert "cannot be written: " in capsys.readouterr().err


def test_studies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert litebert(["lab", "list", "--json", "--no-probe"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["sharing"]["source"] == "Table 4"
    assert len(listed["sharing"]["rows"]) == 10


def test_time_is_estimated_from_runs_or_a_probe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[int] = []

    def speed(encoder: EncoderConfig, **flags: object) -> float:
        probed.append(encoder.hidden_size)
        return 1e12

    monkeypatch.setattr("litebert.lab.estimate.probe_speed", speed)
    run_folder = tmp_path / "sharing-cpu" / "e-h-all-shared-seed0"
    run_folder.mkdir(parents=True)
    timed = {"flops": 1e12, "wall_seconds": 20.0}
    (run_folder / "result.json").write_text(json.dumps(timed))
    flags = ["--runs", str(tmp_path), "--scale", "cpu"]
    assert litebert(["lab", "list", "--json", *flags]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert probed == [128]  # the other scales are not shown
    costs = {name: each["scales"]["cpu"] for name, each in listed.items()}
    assert costs["sharing"]["seconds"] == pytest.approx(20 * costs["sharing"]["flops"] / 1e12)
    assert costs["sharing"]["timed_by"] == "runs"
    assert costs["order"]["seconds"] == pytest.approx(costs["order"]["flops"] / 1e12)
    assert costs["equal-time"] == costs["equal-time"] | {"seconds": 480.0, "timed_by": "set"}
    assert "seconds" not in costs["parameters"]
    assert litebert(["lab", "list", *flags]) == 0
    printed = capsys.readouterr().out
    assert "(runs)" in printed
    assert "Estimates: timed by runs" in printed


def test_a_probe_measures_this_machine() -> None:
    speed = probe_speed(named("demo").encoder, length=16, device="cpu")
    assert 1e6 < speed < 1e15
