"""The pipeline of the embedded models: its commands exist, run in their order, and stop where one
fails."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.studies.benchmarks import merged, worst
from bench.studies.choose import GRID, choose, cut, settings
from tools import make_models
from tools.make_models import STEPS, Command, parse, run_all

SURFACE = Path(__file__).parents[1] / "command_line.txt"


def commands(*words: str) -> list[Command]:
    args = parse(
        [*words, "--out", "out", "--into", "models", "--base", "run", "--teacher", "v.npy"]
    )
    return STEPS[words[0]](args)


def flags_by_command() -> dict[str, set[str]]:
    surface: dict[str, set[str]] = {}
    name = ""
    for line in SURFACE.read_text().splitlines():
        if line.startswith("litebert "):
            name = line.removeprefix("litebert ")
            surface[name] = set()
        else:
            surface[name] |= {each.strip().split(" ")[0] for each in line.split(",")}
    return surface


@pytest.mark.parametrize(
    "words",
    [(step,) for step in STEPS]
    + [
        ("leg", "--leg", "2", "--last", "--minutes", "9"),
        ("leg", "--preset", "litebert-small", "--scale", "tiny"),
        ("tune", "--scale", "tiny", "--minutes", "3"),
    ],
)
def test_every_flag_is_one_of_the_command_line(words: tuple[str, ...]) -> None:
    surface = flags_by_command()
    for command in commands(*words):
        if command.words[0] != "litebert":
            continue
        names = [" ".join(command.words[1:3]), command.words[1]]
        known = next(surface[name] for name in names if name in surface)
        used = {word for word in command.words if word.startswith("--")}
        assert used <= known, command


def test_only_the_last_leg_decays_and_each_has_its_own_seed() -> None:
    (first,), (second,) = commands("leg"), commands("leg", "--leg", "2")
    (last,) = commands("leg", "--leg", "3", "--last")
    assert "--init" not in first.words
    for command, seed in ((first, "1"), (second, "2"), (last, "3")):
        assert command.words[command.words.index("--seed") + 1] == seed
    assert second.words[second.words.index("--init") + 1] == "out/litebert-base/leg-1"
    schedules = [each.words[each.words.index("--schedule") + 1] for each in (first, second, last)]
    assert schedules == ["constant", "constant", "stable"]


def test_what_probes_chose_is_handed_to_the_legs() -> None:
    (leg,) = commands("leg", "--flags=--objective rtd --encoder 'norm=pre'")
    assert leg.words[leg.words.index("--objective") + 1] == "rtd"
    assert "norm=pre" in leg.words
    (tag,) = commands("tune", "--only", "tag", "--flags=--patience 0")
    assert tag.words[-2:] == ["--patience", "0"]


def test_sentiment_learns_to_exit_early() -> None:
    (sentiment,) = commands("tune", "--only", "sentiment")
    assert "--exits one --calibrate" in str(sentiment)
    (tiny,) = commands("tune", "--only", "sentiment", "--scale", "tiny")
    assert "--exits one" in str(tiny)


def test_vectors_come_before_the_pairs_and_nothing_is_chosen_by_sts_b() -> None:
    similarity = {each.name: each for each in commands("tune") if "similarity" in each.name}
    assert similarity["similarity-taught"].after == ("similarity-vectors",)
    assert all("--dev" not in each.words for each in similarity.values())


def test_similarity_is_scored_as_stored_and_may_be_the_taught_run(tmp_path: Path) -> None:
    (tmp_path / "cisi").mkdir()
    (tmp_path / "cisi" / "corpus.jsonl.xz").write_bytes(b"")
    scored = {each.name: each for each in commands("score", "--retrieval", str(tmp_path / "cisi"))}
    assert "tasks/similarity/dev.csv" in scored["similarity"].words
    retrieval = scored["retrieval-cisi"]
    assert retrieval.out == Path("out/scores/retrieval-cisi.json")
    assert str(tmp_path / "cisi" / "corpus.jsonl.xz") in retrieval.words
    assert str(tmp_path / "cisi" / "qrels" / "test.tsv") in retrieval.words
    (embedded,) = commands("embed", "--only", "similarity", "--run", "similarity=similarity-taught")
    assert embedded.words[3] == "out/similarity-taught"


def test_commands_wait_for_others_and_failures_stop_what_waits(tmp_path: Path) -> None:
    def python(name: str, code: str, *after: str, out: Path | None = None) -> Command:
        return Command(name=name, words=["python", "-c", code], after=after, out=out)

    mark = tmp_path / "mark"
    records = run_all(
        [
            python("late", f"print(open({str(mark)!r}).read())", "early", out=tmp_path / "late"),
            python("early", f"open({str(mark)!r}, 'w').write('seen')"),
            python("bad", "raise SystemExit(75)"),
            python("never", "print(1)", "bad"),
        ],
        tmp_path / "logs",
        jobs=2,
    )
    assert {each["name"]: each["exit_code"] for each in records} == {
        "early": 0,
        "bad": 75,
        "late": 0,
    }
    assert (tmp_path / "late").read_text() == "seen\n"


def test_a_step_writes_its_record_and_says_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [Command(name="one", words=["python", "-c", "raise SystemExit(3)"])]
    monkeypatch.setitem(make_models.STEPS, "probes", lambda args: commands)
    monkeypatch.setattr(sys, "argv", ["make_models", "probes", "--out", str(tmp_path)])
    assert make_models.main() == 1
    (record,) = json.loads((tmp_path / "record" / "probes.json").read_text())
    assert (record["name"], record["exit_code"]) == ("one", 3)
    assert record["command"].startswith("python -c")
    assert "revision" in json.loads((tmp_path / "record" / "run.json").read_text())


def test_chosen_flags_replace_those_of_the_same_name() -> None:
    flags = ("--epochs", "3", "--encoder-dropout", "0.1", "--random-weights")
    assert merged(flags, ("--encoder-dropout", "0")) == (
        "--epochs",
        "3",
        "--random-weights",
        "--encoder-dropout",
        "0",
    )
    assert merged(flags, ()) == flags


def test_settings_are_chosen_where_all_have_a_score() -> None:
    tried = [("cola", 0.4, 0), ("cola", 0.3, 0), ("cola", None, 4), ("rte", 0.9, 0)]
    rows: list[dict[str, Any]] = [
        {"task": task, "score": score, "exit_code": code, "flags": [str(number)]}
        for number, (task, score, code) in enumerate([*tried, ("rte", None, 75)])
    ]
    assert {task: row["flags"] for task, row in choose(rows).items()} == {"cola": ["0"]}
    assert [worst(codes) for codes in ([0, 0], [75, 0], [75, -9], [0, 2], [])] == [0, 75, 1, 1, 0]


def test_a_part_of_train_is_kept_aside(tmp_path: Path) -> None:
    rows = [f"text {number}\t{number % 2}" for number in range(400)]
    (tmp_path / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    count = cut(tmp_path / "train.tsv", tmp_path / "cut", has_header=True)
    train, dev = (
        (tmp_path / "cut" / f"{split}.tsv").read_text().splitlines() for split in ("train", "dev")
    )
    assert train[0] == dev[0] == "sentence\tlabel"
    assert len(dev) == count + 1
    assert sorted(train[1:] + dev[1:]) == sorted(rows)
    assert 20 < count < 60
    assert len(list(settings())) == len(GRID["--learning-rate"]) * len(GRID["--encoder-dropout"])
