"""The report: nothing of the curve is hidden, nothing hostile gets through, nothing is requested
from outside, any run is read."""

import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from litebert import cli
from litebert.errors import ConfigError, DataError
from litebert.recipes import NAMED
from litebert.report import read_run, write_report
from litebert.report.charts import choose_charts
from litebert.report.lines import Line, LineTable, evenly_spaced
from litebert.report.markup import count, measure, number
from litebert.report.page import LIMIT
from litebert.report.run import RunData
from tests.helpers.run_folders import examples, finetuning, make_run, records

VOID = {"meta", "input", "br", "path"}


class Reader(HTMLParser):
    """Checks that elements are closed in order, and collects what a page could ask for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.words = ""
        self.feed(page)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "srcset", "action", "data")
        ]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def page_of(*folders: Path, out: Path | None = None) -> str:
    return write_report(folders, out).path.read_text(encoding="utf-8")


# curves


def line_of(values: Sequence[float], max_points: int, name: str = "loss") -> Line:
    """The line that is drawn of a column."""
    run = RunData(name="run", folder=Path())
    for step, value in enumerate(values):
        run.add({"kind": "step", "step": step, "loss": value})
    line = LineTable(max_points).train(run, 0, name)
    assert line is not None
    return line


def test_no_spike_is_lost_between_the_points() -> None:
    values = [1.0] * 10_000
    values[4321], values[77] = 9.0, -3.0
    band = line_of(values, 50).band
    assert band is not None
    assert max(high for _, high in band) == 9.0
    assert min(low for low, _ in band) == -3.0


@pytest.mark.parametrize(("length", "most"), [(1, 5), (5, 5), (7, 5), (1000, 7)])
def test_a_line_has_points_from_the_first_record_to_the_last(length: int, most: int) -> None:
    line = line_of([float(i) for i in range(length)], most)
    steps = line.xs["steps"]
    assert len(line.values) == len(steps) == min(length, most)
    assert (steps[0], steps[-1]) == (1, length)
    assert line.band is not None
    assert (line.band[0][0], line.band[-1][1]) == (0, length - 1)
    assert [low for low, _ in line.band[1:]] == [high + 1 for _, high in line.band[:-1]]
    assert evenly_spaced(length, most)[-1] == length - 1


def test_a_straight_line_is_smoothed_to_itself_until_its_last_window() -> None:
    values = [3.0 * i for i in range(1000)]
    assert line_of(values, 1000).values[:990] == pytest.approx(values[:990])


def test_smoothing_passes_over_what_is_not_finite() -> None:
    values = [2.0] * 500 + [math.nan] * 3 + [2.0] * 500
    assert line_of(values, 100).values == pytest.approx([2.0] * 100)
    assert all(math.isnan(value) for value in line_of([math.nan] * 4, 4).values)


def test_speed_is_tokens_over_seconds_of_each_point() -> None:
    run = RunData(name="run", folder=Path())
    for step, (tokens, seconds) in enumerate([(10, 1), (20, 2), (40, 3), (60, 4)]):
        run.add({"kind": "step", "step": step, "tokens": tokens, "seconds": seconds})
    line = LineTable(2).train(run, 0, "tokens_per_second")
    assert line is not None
    assert line.values == [10, 20]


# numbers


def scale_of(page: str, title: str) -> list[tuple[float, float]]:
    """The vertical axis of a chart: how far from the top, in percent, each labeled value is."""
    scale = page.split(f"<h3>{title}</h3>")[1].split('<div class="scale">')[1].split("</div>")[0]
    labeled = re.findall(r'top:([-\d.]+)%">([-\d.e]+)<', scale)
    return [(float(top), float(label)) for top, label in labeled]


def test_axes_are_linear_or_logarithmic_with_round_labels(tmp_path: Path) -> None:
    lines = [
        {"kind": "step", "step": i, "loss": 2.9 + 7.5 * i / 999, "norm": 0.01 * 10 ** (i / 250)}
        for i in range(1000)
    ]
    page = page_of(make_run(tmp_path / "a", lines))
    for title, transform, labels in (
        ("Loss", float, {4, 6, 8, 10}),
        ("Gradient norm, before clipping", math.log, {0.01, 0.1, 1, 10, 100}),
    ):
        scale = scale_of(page, title)
        assert {value for _, value in scale} == labels
        (top, high), (bottom, low) = scale[-1], scale[0]
        slope = (bottom - top) / (transform(low) - transform(high))
        for position, value in scale:
            expected = top + slope * (transform(value) - transform(high))
            assert position == pytest.approx(expected, abs=0.2)


def test_horizontal_axes_count_steps_and_time_in_round_numbers(tmp_path: Path) -> None:
    lines = [
        {"kind": "step", "step": i, "loss": 1.0 + i, "tokens": 10 * i, "seconds": 1.0 * i}
        for i in range(7325)
    ]
    page = page_of(make_run(tmp_path / "a", lines))
    axes = {
        axis: re.findall(
            r">([^<]+)<", page.split(f'<div class="bottom over-{axis}">')[1].split("</div>")[0]
        )
        for axis in ("steps", "seconds")
    }
    assert axes["steps"] == ["0 steps", "1 k", "2 k", "3 k", "4 k", "5 k", "6 k", "7 k"]
    assert axes["seconds"] == ["0", "0.5 h", "1 h", "1.5 h", "2 h"]


def test_numbers_read_as_a_person_writes_them() -> None:
    assert [number(value) for value in (3.14159, 12345.6, 1.2e-5, math.nan)] == [
        "3.142",
        "12,346",
        "1.2e-05",
        "not finite",
    ]
    assert [count(value) for value in (850, 12_500, 61_400_000, 999_900)] == [
        "850",
        "12.5 k",
        "61.4 M",
        "1,000 k",
    ]
    assert measure("masked_accuracy", 0.4567) == "45.7 %"
    assert measure("accuracy", 91.2) == "91.2", "already a percentage"


# reading


def test_a_step_lies_where_the_evaluation_after_it_lies(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "a", records(40, evaluations=4)))
    assert run.steps == 40
    assert run.evaluations[-1].step == 40
    places = run.positions([0, 40, 99])
    assert places["tokens"] == [0, run.total("tokens"), run.total("tokens")]


def test_steps_that_were_done_again_stand_once_as_done_last(tmp_path: Path) -> None:
    first, again = records(30, evaluations=3), records(30, seed=9, evaluations=3)
    run = read_run(make_run(tmp_path / "a", first + [line for line in again if line["step"] >= 15]))
    assert list(run.steps_done) == list(range(1, 31))
    assert run.num_repeated == 15
    last = {line["step"]: line["loss"] for line in again if line["kind"] == "step"}
    assert list(run.columns["loss"][15:]) == [last[step] for step in range(15, 30)]
    assert [each.step for each in run.evaluations] == [10, 20, 30]
    assert "15 steps were repeated" in page_of(tmp_path / "a")


def test_a_line_being_written_is_left_for_the_next_report(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", records(20), state="running")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "step": 20, "lo')
    assert read_run(folder).steps == 20
    assert "running" in page_of(folder)


def test_a_run_said_to_be_running_but_long_quiet_is_called_silent(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", records(20), state="running")
    os.utime(folder / "metrics.jsonl", (0, 0))
    assert read_run(folder).state == "silent"
    assert "it may have been killed" in page_of(folder)


@pytest.mark.parametrize("state", ["finished", "interrupted", "diverged", "stopped", None])
def test_the_state_is_said(tmp_path: Path, state: str | None) -> None:
    page = page_of(make_run(tmp_path / "a", records(5), state=state))
    assert f'<span class="state {state or "unknown"}">{state or "unknown"}</span>' in page


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"is not the folder of a run; expected recipe\.json and metrics\.jsonl"
    ):
        write_report([tmp_path])
    with pytest.raises(ConfigError, match="at least one run"):
        write_report([])
    folder = make_run(tmp_path / "a", [])
    mine = tmp_path / "mine.html"
    mine.write_text("<title>mine</title>")
    with pytest.raises(ConfigError, match=r"mine\.html exists and is not a report of litebert"):
        write_report([folder], mine)
    assert mine.read_text() == "<title>mine</title>"
    for _ in range(2):  # its own is replaced
        write_report([folder])
    with pytest.raises(ConfigError, match="is a folder; --out takes the file to write"):
        write_report([folder], tmp_path)
    with pytest.raises(ConfigError, match=r"cannot write .*; choose another --out"):
        write_report([folder], folder / "recipe.json" / "report.html")
    (folder / "recipe.json").write_text("{")
    with pytest.raises(DataError, match=r"recipe\.json is not JSON"):
        write_report([folder])


# the page


def test_a_run_that_has_just_begun_gives_a_page(tmp_path: Path) -> None:
    assert "No step has been recorded yet" in Reader(page_of(make_run(tmp_path / "a", []))).words
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "recipe.json").write_text("{}")
    assert "The run has no recipe.json yet" in Reader(page_of(bare)).words
    Reader(page_of(make_run(tmp_path / "one", records(1, evaluations=0), state="running")))


def test_the_last_numbers_stand_at_the_top(tmp_path: Path) -> None:
    lines = records(200)
    last = [line for line in lines if line["kind"] == "evaluation"][-1]
    tiles = (
        page_of(make_run(tmp_path / "a", lines)).split('<dl class="tiles">')[1].split("</dl>")[0]
    )
    for shown in (
        number(last["masked_loss"]),
        measure("masked_accuracy", last["masked_accuracy"]),
        number(last["perplexity"]),
    ):
        assert shown in tiles
    assert "200" in tiles


def test_the_best_is_among_evaluations_of_the_last_ones_length(tmp_path: Path) -> None:
    """Scores at another length are not comparable; `best/` starts over there, too."""
    losses = [(1, 128, 4.1), (2, 128, 4.0), (3, 512, 4.6), (4, 512, 4.7)]
    evaluations = [
        {"kind": "evaluation", "step": step, "masked_loss": loss, "sequence_length": length}
        for step, length, loss in losses
    ]
    page = page_of(make_run(tmp_path / "run", records(4, evaluations=0) + evaluations))
    assert "best 4.6 at step 3" in page
    assert "at step 2" not in page
    assert re.findall(r'class="best">([^<]*)', page) == ["4.6"]


@pytest.mark.parametrize(
    ("state", "note"), [("running", "the best yet"), ("finished", "the best of the run")]
)
def test_only_a_run_that_goes_on_has_a_best_yet(tmp_path: Path, state: str, note: str) -> None:
    evaluations = [
        {"kind": "evaluation", "step": step, "masked_loss": 5.0 - step} for step in (1, 2)
    ]
    page = page_of(make_run(tmp_path / "run", records(2, evaluations=0) + evaluations, state=state))
    assert f"<small>{note}</small>" in page
    assert page.count("the best") == 1


@pytest.mark.parametrize(("lead", "is_marked"), [(0.5, True), (0.02, False)])
def test_a_run_is_best_where_it_leads_by_more_than_the_noise(
    tmp_path: Path, lead: float, is_marked: bool
) -> None:
    """Evaluations that alternate by 0.05 around a straight line."""
    folders = []
    for name, ahead in (("behind", 0.0), ("ahead", lead)):
        evaluations = [
            {
                "kind": "evaluation",
                "step": step,
                "masked_loss": 5 - 0.1 * step - ahead + 0.05 * (step % 2),
            }
            for step in range(1, 9)
        ]
        lines = records(8, evaluations=0) + evaluations
        folders.append(make_run(tmp_path / name, lines))
    page = page_of(*folders, out=tmp_path / "both.html")
    comparison = page.split('id="compare"')[1].split("<article")[0]
    expected = [number(5 - 0.8 - lead)] if is_marked else []
    assert re.findall(r'class="best">([^<]*)', comparison) == expected
    assert ("Bold: ahead of the others" in comparison) == is_marked


def test_nothing_is_asked_from_outside_and_every_element_is_closed(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / name, records(300, seed=i)) for i, name in enumerate("ab")]
    page = page_of(*folders, out=tmp_path / "both.html")
    read = Reader(page)
    assert all(link.startswith("#") for link in read.links)
    assert not {"img", "link", "iframe", "object", "embed", "form", "base"} & set(read.tags)
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttp|import\(", page)
    assert "default-src 'none'" in page


def test_hostile_names_and_texts_are_only_text(tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>\"'&\x00\u202e\ud800"
    example = {
        "pieces": [evil, "b"],
        "masked": [0, "x", 99],
        "truth": [evil, 1, 2],
        "guesses": [[[evil, "nan"], 3], None, [[]]],
    }
    lines = [
        {
            "kind": "step",
            "step": 0,
            "loss": 1.0,
            evil: 2.0,
            "tokens": 10**400,
            "seconds": "nan",
            "norm": [1],
        },
        {"kind": "step", "step": 1, "loss": "nan", evil: 3.0, "rate": {"a": 1}, "tokens": -5},
        {"kind": "evaluation", "step": 2, evil: 1.0, "note": evil},
        {"kind": "event", "step": 1, "event": evil, "message": evil},
        {"kind": "event", "step": 1},
        {"kind": "examples", "step": 2, "examples": [example, evil, {}, {"pieces": 3}]},
        {"kind": "examples", "step": 2, "examples": evil},
        {"kind": evil, "step": 3},
    ]
    name = evil.replace("/", "∕").replace("\x00", "").replace("\ud800", "")
    folders = [
        make_run(
            tmp_path / f"{name}{i}",
            lines,
            state=evil,
            recipe={evil: {evil: [evil, {"a": evil}]}},
            environment={evil: evil},
        )
        for i in range(2)
    ]
    for page in (page_of(folders[0]), page_of(*folders, out=tmp_path / "both.html")):
        read = Reader(page)
        assert "img" not in read.tags
        assert read.tags.count("script") == 2
        assert not read.handlers
        assert "\x00" not in page
        assert "\u202e" not in page
        assert page.count("</script>") == 2


def test_losses_that_are_not_finite_leave_a_gap_and_a_mark(tmp_path: Path) -> None:
    lines = records(100, evaluations=0)
    for line in lines[40:50]:
        line["masked_loss"] = line["loss"] = "nan"
    lines.append(
        {"kind": "event", "step": 40, "event": "skip", "message": "loss nan: not stepped on"}
    )
    page = page_of(make_run(tmp_path / "a", lines))
    first = page.split("<h3>Masked-token loss</h3>")[1]
    raw = re.search(r'class="raw" d="([^"]*)"', first)
    assert raw is not None
    assert raw[1].count("M") == 2, "one stretch before the gap, one after"
    assert 'class="mark grave" data-text="skip: loss nan: not stepped on"' in first
    assert "NaN" not in page


def test_a_burst_is_said_instead_of_pressing_the_curve_flat(tmp_path: Path) -> None:
    lines = records(1000, evaluations=0)
    lines[700]["masked_loss"] = 1e6
    assert "highest: 1,000,000, off the scale" in page_of(make_run(tmp_path / "a", lines))
    diverged = records(1000, evaluations=0)
    for line in diverged[800:]:
        line["masked_loss"] = 500.0
    assert "highest: 500, off the scale" in page_of(make_run(tmp_path / "b", diverged))
    assert "off the scale" not in page_of(make_run(tmp_path / "c", records(1000, plateau=0.9))), (
        "the beginning is no burst"
    )


def test_a_change_of_stage_is_marked(tmp_path: Path) -> None:
    words = Reader(page_of(make_run(tmp_path / "a", records(100)))).words
    assert "sequence length 128 → 512" in words
    lines = records(100, evaluations=0)
    for i, line in enumerate(lines):
        line["mask_fraction"] = 0.35 if i < 80 else 0.15
    assert "mask fraction 0.35 → 0.15" in Reader(page_of(make_run(tmp_path / "b", lines))).words


def test_lengths_that_differ_from_batch_to_batch_are_no_stages(tmp_path: Path) -> None:
    """Nor is the smaller batch at the end of an epoch."""
    lines = records(100, evaluations=0)
    for i, line in enumerate(lines):
        line |= {"sequence_length": 20 + i * 7 % 13, "batch_size": 5 if i % 20 == 19 else 32}
    assert "→" not in Reader(page_of(make_run(tmp_path / "a", lines))).words


def test_a_fine_tuning_run_has_its_own_measures_drawn(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", finetuning(200), recipe={"task": "sst2", "rate": 2e-5})
    titles = [chart.title for chart in choose_charts([read_run(folder)])]
    assert titles[:2] == ["Loss", "Accuracy"], "and not the score, which is the accuracy again"
    assert {"F1", "Matthews' correlation"} <= set(titles)
    assert "nearest named recipe" not in page_of(folder)


def test_the_hidden_pieces_show_truth_guesses_and_verdict(tmp_path: Path) -> None:
    lines = [{"kind": "examples", "step": 7, "examples": examples(0.5)[:1]}]
    page = page_of(make_run(tmp_path / "a", lines))
    kinds = re.findall(r'class="slot (\w+)">[^<]*<sup>', page)
    assert kinds == ["right", "right", "right", "among", "among", "wrong"]
    assert "[MASK]" not in Reader(page).words
    assert "61 %" in page


def test_settings_that_differ_from_the_nearest_named_recipe_are_marked(tmp_path: Path) -> None:
    recipe = replace(NAMED["demo"], seed=7, overrides=NAMED["demo"].overrides[1:])
    for name, content in (
        ("plain", recipe.to_dict()),
        ("nested", {"recipe": recipe.to_dict(), "inputs": {"corpus": "abc"}}),
    ):
        words = Reader(page_of(make_run(tmp_path / name, [], recipe=content))).words
        assert "The nearest named recipe is demo; 2 settings differ from it" in words


def test_differences_are_by_setting(tmp_path: Path) -> None:
    first, second = {"a": {"b": 1, "c": [1, 2]}, "d": None}, {"a": {"b": 2, "c": [1, 2]}}
    folders = [
        make_run(tmp_path / name, [], recipe=recipe)
        for name, recipe in (("one", first), ("two", second))
    ]
    page = page_of(*folders, out=tmp_path / "both.html")
    compared = page.split("What differs in the recipes")[1].split("</table>")[0]
    names = re.findall(r'<th scope="row">([^<]*)</th>', compared)
    assert names == ["a.b", "d"], "none is not the same as absent"


def test_several_runs_are_compared(tmp_path: Path) -> None:
    long = make_run(tmp_path / "x" / "run", records(400, seed=1), recipe=NAMED["affordable"])
    short = make_run(
        tmp_path / "y" / "run", records(200, seed=2, floor=5.0), recipe=NAMED["affordable-post"]
    )
    page = page_of(long, short, out=tmp_path / "out" / "both.html")
    compared = page.split('<section id="compare">')[1].split("</section>")[0]
    words = Reader(compared).words
    assert "x/run" in words
    assert "y/run" in words, "told apart by the folder above"
    assert "optimizer.learning_rate" in words
    assert "overrides.norm" in words
    assert "The environments are the same." in words
    assert "At equal tokens" in words
    numbers = json.loads(page.split('id="numbers">')[1].split("</script>")[0])
    assert {line["run_name"] for line in numbers["lines"]} == {"x/run", "y/run"}
    assert all(
        len(line["values"]) == len(numbers["places"][line["places"]]["steps"])
        for line in numbers["lines"]
    )


def test_the_same_folder_twice_is_told_apart(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", records(10))
    assert [run.name for run in write_report([folder, folder], tmp_path / "o.html").runs] == [
        "a (1)",
        "a (2)",
    ]


def test_a_long_run_and_many_runs_stay_small(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "long", records(8_000, evaluations=400))
    assert write_report([folder]).num_bytes < 600_000
    many = [folder] + [make_run(tmp_path / f"{i}", records(300, seed=i)) for i in range(11)]
    assert write_report(many, tmp_path / "many.html").num_bytes <= LIMIT


# the command


def test_the_command_says_where_the_report_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path / "a", records(50))
    assert cli.run(["report", str(folder)]) == 0
    assert str(folder / "report.html") in capsys.readouterr().out
    assert (
        cli.run(["report", str(folder), str(folder), "--out", str(tmp_path / "b.html"), "--json"])
        == 0
    )
    facts = json.loads(capsys.readouterr().out)
    assert facts["report"] == str(tmp_path / "b.html")
    assert facts["bytes"] == (tmp_path / "b.html").stat().st_size
    assert facts["runs"][0]["steps"] == 50
    assert facts["runs"][0]["evaluation"]["masked_loss"] > 0
    assert not list(tmp_path.glob(".*")), "no temporary file stays"


def test_several_runs_without_out_go_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [str(make_run(tmp_path / name, [])) for name in "ab"]
    monkeypatch.chdir(tmp_path)
    assert cli.run(["report", *folders]) == 0
    assert capsys.readouterr().out.startswith("report.html (")
    assert (tmp_path / "report.html").is_file()


def test_the_command_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", str(tmp_path / "none")]) == 3
    assert capsys.readouterr().err.count("\n") == 1


# in a browser


@pytest.mark.system
def test_a_browser_runs_the_page_under_its_own_policy_without_a_complaint(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")
    folders = [make_run(tmp_path / name, records(300, seed=i)) for i, name in enumerate("ab")]
    page = page_of(*folders, out=tmp_path / "both.html")
    broken = page.replace("script-src 'sha256-", "script-src 'sha256-AAAA")
    complaints = []
    for name, content in (("intact", page), ("broken", broken)):
        (tmp_path / f"{name}.html").write_text(content, encoding="utf-8")
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-component-update"
        more = [
            "--disable-background-networking",
            "--disable-sync",
            "--disable-quic",
            "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / name}",
            "--dump-dom",
        ]
        command = [browser, *flags.split(), *more, (tmp_path / f"{name}.html").as_uri()]
        done = subprocess.run(command, capture_output=True, text=True)
        complaints.append(done.stderr.count(":CONSOLE:"))
        assert 'id="compare"' in done.stdout
    assert complaints[0] == 0
    assert complaints[1] > 0, "the check sees a script that is refused"
