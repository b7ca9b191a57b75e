"""The README's walk from a corpus to a model in transformers, run as it stands there at a small
size, with the default recipe."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

import litebert
from litebert import cli
from litebert.recipes import PretrainRecipe, named
from litebert.testing import tiny_corpus

PAGE = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCK = PAGE.split("## Your own language or domain")[1].split("```")[1]
SHAPE = {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 2, "ffn_size": 64}
ENCODER = dict(named("affordable").overrides) | SHAPE
SMALLER = {
    "tokenizer train": "--vocab-size 90",
    "data build": "--split lines --workers 1",
    "pretrain": f"--encoder {' '.join(f'{name}={value}' for name, value in ENCODER.items())} "
    "--steps 4 --batch-size 8 --sequence-length 24 --evaluate-every 2 --evaluate-tokens 480 "
    "--heldout-fraction 0.1 --device cpu --workers 0",
}
"""Flags beside the README's, or in their place."""
TEXT = "the [MASK] likes the old dog."


def test_the_six_commands_end_in_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    (tmp_path / "corpus").mkdir()
    tiny_corpus(tmp_path / "corpus" / "text.txt", documents=60)
    commands = [line.partition("#")[0].strip() for line in BLOCK.splitlines() if line.strip()]
    verbs = [re.fullmatch(r"litebert ((tokenizer|data)? ?\w+) .*", each)[1] for each in commands]
    assert verbs == ["tokenizer train", "data build", "data show", "pretrain", "report", "convert"]
    for verb, command in zip(verbs, commands, strict=True):
        smaller = shlex.split(SMALLER.get(verb, ""))
        assert cli.run([*smallest(shlex.split(command)[1:], smaller), *smaller]) == 0, (
            capsys.readouterr().err
        )
    recipe = PretrainRecipe.load(Path("runs/mine/recipe.json"))
    assert recipe.encoder == replace(named("affordable").encoder, **SHAPE)
    shown = capsys.readouterr().err
    assert (
        "once converted, transformers loads the model with trust_remote_code=True, since" in shown
    )

    options = {"trust_remote_code": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained("models/mine", **options)
    model = transformers.AutoModelForMaskedLM.from_pretrained("models/mine", **options).eval()
    with torch.no_grad():
        logits = model(**tokenizer(TEXT, return_tensors="pt")).logits[0, 2]
    (best,) = litebert.load("runs/mine").fill(TEXT, top=3)
    expected = [guess.probability for guess in best]
    assert logits.softmax(-1).topk(3).values.tolist() == pytest.approx(expected, abs=1e-6)


def smallest(command: list[str], smaller: list[str]) -> list[str]:
    """The command without the flags that `smaller` replaces."""
    replaced = {index for index, word in enumerate(command) if word in smaller and word[0] == "-"}
    return [
        word
        for index, word in enumerate(command)
        if index not in replaced | {i + 1 for i in replaced}
    ]
