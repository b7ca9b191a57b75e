"""The one-liners and litebert predict as commands: for a person, as JSON, from standard input, and
what goes wrong."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert import cli
from litebert.infer.predictor import load
from tests.helpers.models import LABELS, save_model

CASES: dict[str, tuple[str, list[str], set[str]]] = {
    "fill": ("masked", ["the [MASK] sails", "a [MASK] [MASK]"], {"text", "masks"}),
    "embed": ("masked", ["the whale"], {"text", "vector"}),
    "classify": ("classify", ["the whale", "a ship"], {"text", "label", "probabilities"}),
    "pair": ("classify", ["the whale", "a ship"], {"first", "second", "label", "probabilities"}),
    "regress": ("regress", ["the whale"], {"first", "second", "value"}),
    "choose": (
        "choose",
        ["a ship", "the whale", "--context", "the sea", "--question", "who?"],
        {"question", "options", "index", "option", "probabilities"},
    ),
    "answer": (
        "span",
        ["who?", "--context", "the whale sails"],
        {"question", "text", "start", "end", "score", "null_score", "spans"},
    ),
    "tag": ("tag", ["the whale sails"], {"words", "tags", "probabilities"}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    heads = {head for head, _, _ in CASES.values()}
    return {head: str(save_model(folder / head, head)) for head in heads}  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", CASES)
def test_a_one_liner_answers_a_person_and_a_program(
    verb: str, folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    head, args, keys = CASES[verb]
    command = [verb, *args, "--model", folders[head], "--device", "cpu"]
    assert cli.run([*command, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown) == {"answers"}
    assert all(set(answer) == keys for answer in shown["answers"])
    assert cli.run(command) == 0
    person = capsys.readouterr()
    assert person.out.strip()
    assert "{" not in person.out


@pytest.mark.parametrize("verb", CASES)
def test_a_few_words_are_computed_by_one_thread(
    verb: str, folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tried(threads: int) -> float:
        raise AssertionError("no core is tried out for a few words")

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("litebert.threads.num_cores", lambda: 4)
    monkeypatch.setattr("litebert.threads.free_cores", tried)
    head, args, _ = CASES[verb]
    assert cli.run([verb, *args, "--model", folders[head], "--json"]) == 0


def test_classify_says_what_python_says(
    folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["classify", "the whale", "--model", folders["classify"], "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["answers"][0]
    prediction = load(folders["classify"]).classify("the whale")
    assert answer["label"] == prediction.label
    assert answer["probabilities"] == pytest.approx(prediction.probabilities, abs=1e-5)
    assert cli.run(["classify", "the whale", "--model", folders["classify"]]) == 0
    shown = capsys.readouterr().out
    assert all(label in shown for label in LABELS)


def standard_input(monkeypatch: pytest.MonkeyPatch, data: bytes, *, terminal: bool = False) -> None:
    stream: Any = io.TextIOWrapper(io.BytesIO(data))
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdin", stream)


def test_texts_may_come_from_standard_input(
    folders: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for args in ([], ["-"]):
        standard_input(monkeypatch, "the whale\n\na ship, naïve\n".encode())
        assert cli.run(["classify", *args, "--model", folders["classify"], "--json"]) == 0
        answers = json.loads(capsys.readouterr().out)["answers"]
        assert [answer["text"] for answer in answers] == ["the whale", "a ship, naïve"]
    standard_input(
        monkeypatch, "the\u2028whale\x85sails\r\na\x0bship".encode()
    )  # only a line feed ends a line, as in files
    assert cli.run(["classify", "--model", folders["classify"], "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert [answer["text"] for answer in answers] == ["the\u2028whale\x85sails", "a\x0bship"]
    standard_input(monkeypatch, b"the whale sails\nthe sea")
    assert cli.run(["answer", "who?", "--context", "-", "--model", folders["span"], "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["answers"][0]
    assert answer["text"] == "the whale sails\nthe sea"[answer["start"] : answer["end"]]


@pytest.mark.parametrize(
    ("data", "terminal", "code", "message"),
    [
        (
            b"",
            True,
            2,
            "no text was given; write it behind the command, or send lines to standard input",
        ),
        (b"\n \n", False, 3, "standard input holds no text; expected one a line"),
        (
            b"\xff\xfe",
            False,
            3,
            "standard input is not UTF-8 (byte 1: invalid start byte); convert it first",
        ),
    ],
)
def test_standard_input_that_cannot_be_used(
    data: bytes,
    terminal: bool,
    code: int,
    message: str,
    folders: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standard_input(monkeypatch, data, terminal=terminal)
    assert cli.run(["tag", "--model", folders["tag"]]) == code
    assert message in capsys.readouterr().err


def test_without_a_model_a_one_liner_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "litebert.models.index.embedded_models", lambda: ()
    )  # a package built without any
    for command in (["fill", "a [MASK]"], ["predict", "in.csv", "--out", "p.jsonl"]):
        assert cli.run(command) == 2
        assert (
            "there is no embedded model yet; give a folder with --model" in capsys.readouterr().err
        )


def test_vectors_go_to_a_file(
    tmp_path: Path, folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "embed",
        "the whale",
        "a ship",
        "--model",
        folders["masked"],
        "--pooling",
        "cls",
        "--normalize",
    ]
    assert cli.run([*command, "--out", str(tmp_path / "v.npy")]) == 0
    assert "2 vectors of 32" in capsys.readouterr().err
    vectors = np.load(tmp_path / "v.npy")
    assert cli.run([*command, "--out", str(tmp_path / "v.npy")]) == 2
    assert "v.npy exists; add --overwrite, or choose another --out" in capsys.readouterr().err
    assert cli.run([*command, "--out", str(tmp_path / "v.npy"), "--overwrite"]) == 0
    np.testing.assert_allclose(
        vectors,
        load(folders["masked"]).embed(["the whale", "a ship"], pooling="cls", normalize=True),
    )
    assert cli.run([*command, "--out", "v.txt"]) == 2
    assert "--out is a .npy file; got v.txt" in capsys.readouterr().err
    assert cli.run([*command, "--out", str(tmp_path / "no" / "v.npy")]) == 3
    assert (
        "cannot be written (No such file or directory); choose another --out"
        in capsys.readouterr().err
    )


def test_embed_tells_the_nearest_of_several_texts(
    folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["the whale", "a ship at sea", "the whale", "a sailor"]
    assert cli.run(["embed", *texts, "--model", folders["masked"]]) == 0
    lines = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("  nearest: ")
    ]
    assert len(lines) == 4
    assert lines[0] == lines[2] == "  nearest: the whale (cosine 1.00)"
    assert cli.run(["embed", "the whale", "--model", folders["masked"]]) == 0
    assert "nearest" not in capsys.readouterr().out


def test_predict_from_the_command_line(
    tmp_path: Path, folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,review,other\n1,the whale,x\n2,a ship,y\n3,,z\n")
    out = tmp_path / "p.tsv"
    command = [
        "predict",
        str(source),
        "--out",
        str(out),
        "--model",
        folders["classify"],
        "--verb",
        "classify",
        "--keep",
        "id",
    ]
    assert cli.run(command) == 3
    assert "in.csv, line 4: the field 'review' is empty" in capsys.readouterr().err
    assert cli.run([*command, "--bad-rows", "skip"]) == 0
    shown = capsys.readouterr().err
    assert "text is 'review'" in shown
    assert "1 bad row was left out" in shown
    assert "2 predictions" in shown
    assert [line.split("\t")[:2] for line in out.read_text().splitlines()] == [
        ["line", "id"],
        ["2", "1"],
        ["3", "2"],
    ]
    assert cli.run([*command, "--bad-rows", "skip", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["rows_before"], report["bad_rows"]) == (2, 2, 1)
    assert cli.run([*command, "--text", "other", "--batch-tokens", "64"]) == 2
    shown = capsys.readouterr().err
    assert "text: none then, other now" in shown
    assert "batch_tokens: 2048 then, 64 now" in shown


def test_texts_that_the_model_cannot_read_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(save_model(tmp_path / "model", "classify"))
    long = "the whale " * 10_000
    for command in ("classify", "embed"):
        assert cli.run([command, "the whale", "𓀀 𓀁", long, "𓀂", "--model", folder]) == 0
        notes = [line for line in capsys.readouterr().err.splitlines() if "note" in line]
        assert len(notes) == 2, notes
        assert notes[0].startswith("note: the model knows no character of the text '𓀀 𓀁', so")
        assert "the model reads 64 tokens, and the text 'the whale the" in notes[1]
        assert "(100,000 characters) has " in notes[1]
        assert notes[1].endswith(": its end was not read")
    assert cli.run(["pair", "the whale", "𓀀", "--model", folder]) == 0
    assert "knows no character of the text '𓀀'" in capsys.readouterr().err
    assert cli.run(["classify", "the whale", "--model", folder]) == 0
    assert capsys.readouterr().err == ""
    assert cli.run(["pair", "the whale " * 12, "a fox " * 12, "--model", folder]) == 0
    assert "and the pair with 'the whale the" in capsys.readouterr().err
    whole = str(save_model(tmp_path / "whole", "masked", "tag", "span", "choose"))
    for command in (
        ["fill", "𓀀 [MASK]"],
        ["tag", "𓀀 𓀀"],
        ["answer", "who ?", "--context", "𓀀"],
        ["choose", "a fox", "a dog", "--context", "𓀀", "--question", "who ?"],
    ):
        assert cli.run([*command, "--model", whole]) == 0
        assert "knows no character of the text '𓀀" in capsys.readouterr().err
    assert cli.run(["fill", "[MASK]", "--model", whole]) == 0
    assert cli.run(["tag", long, "--model", whole]) == 0
    assert capsys.readouterr().err == ""
    assert cli.run(["fill", f"[MASK] {long}", "--model", whole]) == 0
    assert "the model reads 64 tokens, and the text '[MASK] the" in capsys.readouterr().err
    assert cli.run(["answer", " ", "--context", "a fox", "--model", whole]) == 3
    assert "the text for question is empty" in capsys.readouterr().err
