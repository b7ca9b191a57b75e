"""Lone surrogates and file names that are not UTF-8 are quarantined or escaped, and JSON stays
valid: no reader or writer ends in a traceback."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert import cli
from litebert.convert.folder import convert_folder
from litebert.files import encode, to_json, write_file, write_json
from litebert.recipes import FinetuneRecipe
from litebert.testing import tiny_recipe, tiny_shards, tiny_tokenizer
from litebert.train.log import Log, read_records
from tests.helpers.models import save_model
from tests.helpers.text import made_lines

ODD = os.fsdecode(b"odd\xff")
"""A name that Linux allows and no encoding has."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / ODD
    try:
        path.mkdir()
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    return path


@pytest.mark.parametrize("value", ["a\ud800b", "\udcff", "é\udfff😀", "plain"])
def test_json_with_lone_surrogates_is_valid(value: str, tmp_path: Path) -> None:
    for ascii in (True, False):
        text = to_json({value: value}, ensure_ascii=ascii)
        assert json.loads(text.encode()) == {value: value}
    write_json(tmp_path / "x.json", [value])
    assert json.loads((tmp_path / "x.json").read_bytes()) == [value]
    log = Log(tmp_path / "metrics.jsonl")
    log.write("event", 0, message=value)
    log.close()
    assert [record["message"] for record in read_records(tmp_path / "metrics.jsonl")] == [value]
    assert json.loads(FinetuneRecipe(task=value, steps=1).to_json().encode())["task"] == value


def test_text_files_hold_escapes(tmp_path: Path) -> None:
    write_file(tmp_path / "x.html", "a\udcffé")
    assert (tmp_path / "x.html").read_bytes() == b"a\\udcff\xc3\xa9"
    assert encode("é") == "é".encode()


def test_a_corpus_with_such_names_and_texts(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    tokenizer = tiny_tokenizer(folder / "tokenizer")
    corpus = folder / f"{ODD}.jsonl"
    rows = [{"text": line} for line in made_lines(60)]
    odd = [{"text": "half \ud800"}, {"other": "\udfff"}, {"\ud800": 1}]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows + odd))
    command = ["data", "build", str(corpus), "--tokenizer", str(tokenizer)]
    command += ["--out", str(folder / "shards"), "--bad-rows", "quarantine", "--json"]
    assert cli.run(command) == 0
    report = json.loads(capsysbinary.readouterr().out.decode(errors="backslashreplace"))
    assert report["bad_rows"] == 3
    lines = (folder / "shards" / "quarantine.jsonl").read_bytes().splitlines()
    assert len([json.loads(line.decode()) for line in lines]) == 3
    assert cli.run(["data", "show", str(folder / "shards"), "--order", "none", "--json"]) == 0
    assert cli.run([*command[:3], str(folder / "none"), *command[3:]]) in (2, 3)
    train = ["tokenizer", "train", str(corpus), "--bad-rows", "skip", "--vocab-size", "80"]
    assert cli.run([*train, "--out", str(folder / "new"), "--language", "en"]) == 0


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv"])
def test_predict_copies_what_it_keeps(folder: Path, suffix: str) -> None:
    model = save_model(folder / "model", "classify")
    source, out = folder / "in.jsonl", folder / f"out{suffix}"
    rows = [{"text": "the sailor", "name": "half \ud800", "more": ["\udfff"]}] * 3
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["predict", str(source), "--model", str(model), "--out", str(out), "--verb"]
    command += ["classify", "--text", "text", "--keep", "name", "more", "--device", "cpu"]
    assert cli.run(command) == 0
    text = out.read_bytes().decode()
    assert "half \\ud800" in text
    if suffix == ".jsonl":
        assert [json.loads(line)["name"] for line in text.splitlines()] == ["half \ud800"] * 3
    assert cli.run(command) == 0, "it is finished"
    rows.append({"text": "half \ud800", "name": "", "more": []})
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command += ["--bad-rows", "quarantine", "--overwrite"]
    assert cli.run(command) == 0
    (bad,) = Path(f"{out}.quarantine.jsonl").read_bytes().decode().splitlines()
    assert "half of a surrogate pair" in json.loads(bad)["reason"]


def test_runs_reports_and_conversions_in_such_folders(folder: Path) -> None:
    options: dict[str, Any] = {"device": "cpu", "workers": 0, "progress": False}
    shards = tiny_shards(folder)
    run = litebert.pretrain(tiny_recipe(), data=shards, out=folder / "run", **options)
    assert json.loads((folder / "run" / "recipe.json").read_bytes())
    more = litebert.pretrain(tiny_recipe(), data=shards, out=folder / "more", init=run, **options)
    assert json.loads((folder / "more" / "recipe.json").read_bytes().decode())
    page = folder / "page.html"
    assert cli.run(["report", str(run.folder), str(more.folder), "--out", str(page)]) == 0
    assert "odd\\udcff" in page.read_bytes().decode() or page.stat().st_size > 10_000
    for target in ("theirs", "ours"):
        source = run.checkpoint if target == "theirs" else folder / "theirs"
        assert cli.run(["convert", str(source), str(folder / target)]) == 0
    vectors = folder / "vectors.npy"
    command = ["embed", "a \ud800 b", "--model", str(run.folder), "--device", "cpu"]
    assert cli.run([*command, "--out", str(vectors)]) == 0
    assert cli.run([*command, "--json"]) == 0
    assert cli.run(["fill", "a", "--model", str(folder / "none")]) in (2, 3)


def test_labels_with_such_characters_are_converted_and_exported(tmp_path: Path) -> None:
    labels = ("bad \ud800", "good", "é")
    ours = save_model(tmp_path / "ours", "classify", labels=labels)
    theirs = convert_folder(ours, tmp_path / "theirs").folder
    back = convert_folder(theirs, tmp_path / "back").folder
    out = tmp_path / "exported"
    assert cli.run(["export", "--model", str(back), "--out", str(out), "--format", "onnx"]) == 0
    for folder in (ours, theirs, back, out):
        predictor = litebert.load(folder, device="cpu")
        assert predictor.classify(["the sailor"])[0].probabilities.keys() == set(labels)
