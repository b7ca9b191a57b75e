"""Every field of a recipe is a flag, which changes it and is explained by the field's docstring."""

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from litebert import cli
from litebert.commands import finetune, pretrain
from litebert.commands.flags import call
from litebert.recipes import FinetuneRecipe, OptimizerSpec, Recipe, named
from tests.helpers.changed_recipes import FINETUNE, PRETRAIN, docstrings

RECIPES = {
    "pretrain": (named("affordable"), PRETRAIN, pretrain.Settings),
    "finetune": (FinetuneRecipe(task="rte", epochs=1), FINETUNE, finetune.Settings),
}
SPECIAL = {"name": "optimizer", "overrides": "encoder"}
"""Fields whose flags have other names."""


def parse(settings_type: Any, *args: str) -> dict[str, Any]:
    """The settings that a command receives."""
    received: list[dict[str, Any]] = []

    def command(*, settings: Any) -> None:
        """Receive settings."""
        received.append(settings)

    command.__annotations__["settings"] = settings_type
    call(command, args, prog="litebert test")
    return received[0]


def written(name: str, value: Any) -> list[str]:
    """A setting as a person writes it on the command line."""
    flag = "--" + SPECIAL.get(name, name).replace("_", "-")
    match value:
        case bool():
            return [flag if value else flag.replace("--", "--no-", 1)]
        case tuple() if name == "overrides":
            return [flag, *(f"{key}={item}" for key, item in value)]
        case tuple():
            return [flag, *map(str, value)]
        case _:
            return [flag, "none" if value is None else str(value)]


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """Every field by name, the optimizer's beside the others."""
    owners: tuple[Any, ...] = (recipe, recipe.optimizer)
    values = {each.name: getattr(owner, each.name) for owner in owners for each in fields(owner)}
    return {name: value for name, value in values.items() if name not in ("optimizer", "task")}


@pytest.mark.parametrize("command", RECIPES)
def test_the_flags_of_all_fields_together_give_the_recipe(command: str) -> None:
    start, goal, settings_type = RECIPES[command]
    args = [arg for name, value in settings_of(goal).items() for arg in written(name, value)]
    settings = parse(settings_type, *args)
    assert start.changed(settings).to_dict() == goal.to_dict()


@pytest.mark.parametrize("command", RECIPES)
def test_without_flags_nothing_changes(command: str) -> None:
    start, _, settings_type = RECIPES[command]
    assert parse(settings_type) == {}
    assert start.changed({}) == start


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command prints, without frames, on one line."""

    def run(*args: str, code: int = 0) -> str:
        assert cli.run(list(args)) == code
        printed = capsys.readouterr()
        return " ".join(re.sub(r"[│╭╮╰╯─|]", " ", printed.out + printed.err).split())

    return run


@pytest.mark.parametrize("command", RECIPES)
def test_help_explains_every_field_by_its_docstring(
    command: str, shown: Callable[..., str]
) -> None:
    text = shown(command, "--help")
    start, _, _ = RECIPES[command]
    docs = docstrings(type(start)) | docstrings(OptimizerSpec)
    for name in settings_of(start):
        flag = SPECIAL.get(name, name).replace("_", "-")
        position = text.index(f"--{flag} ") if f"--{flag} " in text else text.index(f"--{flag},")
        assert docs[name] in text[position:], name


def test_help_shows_the_values_of_the_recipe(shown: Callable[..., str]) -> None:
    usual, paper = shown("pretrain", "--help"), shown("pretrain", "--recipe", "paper", "--help")
    assert "--optimizer {lamb,adamw,muon}" in usual
    for text, tokens, batch, optimizer in (
        (usual, "60_000_000", "128", "muon"),
        (paper, "none", "4096", "lamb"),
    ):
        for flag, value in (("tokens", tokens), ("batch-size", batch), ("optimizer", optimizer)):
            after = text[text.index(f"--{flag} ") :]
            assert re.search(r"\(default: (\S+)\)", after)[1] == value  # type: ignore[index]


def test_a_wrong_value_is_answered_with_what_is_expected(shown: Callable[..., str]) -> None:
    assert "Expected one of ('reference', 'polynomial'" in shown(
        "pretrain", "--data", "x", "--out", "y", "--schedule", "slowly", code=2
    )
    assert "Error parsing --steps: expected INT; got many" in shown(
        "pretrain", "--data", "x", "--out", "y", "--steps", "many", code=2
    )
    for warmup in ("inf", "1.5", "nan"):
        assert f"Error parsing --warmup: expected STEPS FRACTION; got {warmup}" in shown(
            "pretrain", "--data", "x", "--out", "y", "--warmup", warmup, code=2
        )
    assert "Perhaps you meant: --max-ngram INT" in shown(
        "pretrain", "--data", "x", "--out", "y", "--max-ngra", "2", code=2
    )


def test_switches_are_read_in_every_spelling() -> None:
    _, _, settings_type = RECIPES["pretrain"]
    for args, value in (
        (["--recompute"], True),
        (["--no-recompute"], False),
        (["--recompute", "True"], True),
        (["--recompute", "False"], False),
    ):
        assert parse(settings_type, *args) == {"recompute": value}


def test_old_names_of_flags_are_read_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, settings_type = RECIPES["pretrain"]
    args = ["--rate", "0.1", "--decay=cosine", "--rate_batch_size", "8"]
    args += ["--encoder", "position_init=sinusoidal", "num_layers=2"]
    assert parse(settings_type, *args) == {
        "learning_rate": 0.1,
        "schedule": "cosine",
        "reference_batch_size": 8,
        "encoder": {"position_init": "sinusoidal", "num_layers": 2},
    }
    assert capsys.readouterr().err.splitlines() == [
        "note: --rate is now --learning-rate; the old name is read in this release only",
        "note: --decay is now --schedule; the old name is read in this release only",
        "note: --rate-batch-size is now --reference-batch-size; the old name is read in this "
        "release only",
        "note: position_init is now positions; the old name is read in this release only",
    ]
