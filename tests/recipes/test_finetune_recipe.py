"""Fine-tuning recipes: Table 14 to the digit, the rules beyond it, round trips, and refusals."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest

from litebert.errors import ConfigError
from litebert.recipes import (
    TABLE_14,
    EmbedRecipe,
    FinetuneRecipe,
    OptimizerSpec,
    PretrainRecipe,
    difference,
    paper_recipe,
)
from litebert.recipes.finetune import LIKE
from litebert.recipes.recipe import EpochsRecipe
from tests.helpers.changed_recipes import FINETUNE as OTHER

PAPER = """
cola   1e-5 16  0  5336  320  512
stsb   2e-5 16  0  3598  214  512
sst2   1e-5 32  0  20935 1256 512
mnli   3e-5 128 0  10000 1000 512
qnli   1e-5 32  0  33112 1986 512
qqp    5e-5 128 .1 14000 1000 512
rte    3e-5 32  .1 800   200  512
mrpc   2e-5 32  0  800   200  512
wnli   2e-5 16  .1 2000  250  512
squad1 5e-5 48  0  3649  365  384
squad2 3e-5 48  0  8144  814  512
race   1e-5 32  0  12000 1000 512
"""
"""ALBERT Table 14: rate, batch, dropout, steps, warm-up, length; RACE with the v2 release's rate
and dropout."""


def base(
    task: str, num_examples: int, hidden_size: int = 4096, max_positions: int = 512
) -> FinetuneRecipe:
    return paper_recipe(
        task, num_examples=num_examples, hidden_size=hidden_size, max_positions=max_positions
    )


@pytest.mark.parametrize("line", PAPER.split("\n")[1:-1], ids=lambda line: line.split()[0])
def test_for_the_papers_model_and_data_it_is_the_papers_table(line: str) -> None:
    task, rate, batch, dropout, steps, warmup, length = line.split()
    recipe = base(task, TABLE_14[task].examples)
    assert recipe.optimizer.learning_rate == pytest.approx(float(rate))
    assert (recipe.batch_size, recipe.steps, recipe.optimizer.warmup) == (
        int(batch),
        int(steps),
        int(warmup),
    )
    assert (recipe.encoder_dropout, recipe.head_dropout, recipe.max_length) == (
        float(dropout),
        0.1,
        int(length),
    )


def test_a_narrower_model_has_a_higher_rate_and_a_shorter_one_shorter_inputs() -> None:
    recipe = base("sst2", 67_349, hidden_size=256, max_positions=128)
    assert recipe.optimizer.learning_rate == pytest.approx(1e-5 * 16)
    assert (recipe.steps, recipe.max_length) == (20_935, 128)


@pytest.mark.parametrize(
    ("task", "num_examples", "batch_size", "steps", "warmup"),
    [
        ("squad1", 43_800, 48, 1825, 183),  # half the questions, half the steps: two epochs still
        (
            "mnli",
            7_800,
            128,
            609,
            61,
        ),  # 3.3 epochs would be 199 steps; 800 steps would be 13 epochs: ten epochs
        ("squad2", 9_500, 48, 800, 80),  # three epochs would be 594 steps: 800
        ("classify", 200, 8, 250, 15),  # batches of 8, since 200 / 50 is less
        ("classify", 1_000, 20, 500, 30),
        ("classify", 3, 8, 4, 0),
    ],
)
def test_other_data_have_as_many_epochs_but_short_runs_more(
    task: str, num_examples: int, batch_size: int, steps: int, warmup: int
) -> None:
    recipe = base(task, num_examples)
    assert (recipe.batch_size, recipe.steps, recipe.optimizer.warmup) == (batch_size, steps, warmup)


def test_ones_own_files_take_the_row_of_the_task_they_are_like() -> None:
    assert set(LIKE) == {"classify", "pair", "regress", "choose", "answer", "tag"}
    for kind, like in LIKE.items():
        mine, theirs = (base(name, 5_000) for name in (kind, like))
        assert replace(mine, task=like) == theirs
    null = paper_recipe(
        "answer", num_examples=5_000, hidden_size=64, max_positions=512, has_null=True
    )
    assert null.max_length == 512
    with pytest.raises(
        ConfigError, match="there is no task with a recipe 'diagnostic'; known: cola"
    ):
        base("diagnostic", 10)


def test_other_really_differs_everywhere_and_round_trips() -> None:
    default = FinetuneRecipe(task="sst2", epochs=1)
    assert not [
        f.name for f in fields(default) if getattr(default, f.name) == getattr(OTHER, f.name)
    ]
    for recipe in (OTHER, default, base("race", 10_000)):
        again = FinetuneRecipe.from_json(recipe.to_json())
        assert again == recipe
        assert again.fingerprint == recipe.fingerprint


@pytest.mark.parametrize(
    "name", [f.name for f in fields(FinetuneRecipe) if f.name not in ("epochs", "steps")]
)
def test_difference_and_fingerprint_agree_on_what_is_practical(name: str) -> None:
    default = FinetuneRecipe(task="sst2", steps=500)
    other = replace(default, **{name: getattr(OTHER, name)})
    assert (
        bool(difference(default, other))
        == (default.fingerprint != other.fingerprint)
        == (name not in FinetuneRecipe.practical)
    )


def test_steps_of_epochs() -> None:
    assert FinetuneRecipe(task="x", epochs=3, batch_size=10).total_steps(101) == 33
    assert FinetuneRecipe(task="x", epochs=0.5, batch_size=10).total_steps(100) == 5
    assert FinetuneRecipe(task="x", epochs=0.01, batch_size=10).total_steps(10) == 1
    assert FinetuneRecipe(task="x", steps=7).total_steps(10**6) == 7


@pytest.mark.parametrize("kind", [EmbedRecipe, partial(FinetuneRecipe, task="x")])
def test_warm_up_is_not_longer_than_the_run(kind: Callable[..., EpochsRecipe]) -> None:
    spec = OptimizerSpec(warmup=10)
    with pytest.raises(ConfigError, match="warm-up takes 10 steps, the run has 9; shorten the"):
        kind(epochs=None, steps=9, optimizer=spec)
    recipe = kind(epochs=1, batch_size=10, optimizer=spec)
    assert recipe.total_steps(100) == 10
    with pytest.raises(ConfigError, match="warm-up takes 10 steps, the run has 9; shorten the"):
        recipe.total_steps(90)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 2.0}, "a run has steps or epochs, the other none; got steps 70, epochs 2.0"),
        ({"steps": None}, "a run has steps or epochs, the other none; got steps None, epochs None"),
        ({"steps": 5}, "warm-up takes 7 steps, the run has 5; shorten the warm-up"),
        ({"max_length": 2000}, "microbatch_tokens is a whole number from 2000"),
        ({"batch_size": 0}, "batch_size is a whole number from 1"),
        ({"null_search": "test"}, "null_search is one of dev, train; got 'test'"),
        ({"head_dropout": 1.0}, "head_dropout is a number from 0 to 0.99"),
        ({"patience": -1}, "patience is a whole number from 0"),
        ({"random_weights": 1}, "random_weights is true or false; got 1"),
    ],
)
def test_what_cannot_run_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(OTHER, **changes)


def test_a_recipe_of_another_kind_is_not_taken_for_one() -> None:
    with pytest.raises(ConfigError, match="there is no recipe setting 'preset'"):
        FinetuneRecipe.from_dict(PretrainRecipe().to_dict())


def test_another_optimizer_keeps_the_learning_rate_of_the_task() -> None:
    usual = base("rte", 500)
    assert usual.changed({"optimizer": "lamb"}) == replace(
        usual, optimizer=replace(usual.optimizer, name="lamb", bias_correction=False)
    )
    assert usual.changed({"optimizer": "muon", "betas": (0.9, 0.95)}).optimizer == replace(
        usual.optimizer, name="muon", betas=(0.9, 0.95)
    )


def test_fingerprints_are_those_of_the_first_release() -> None:
    first = "c789c3e53041f23693e4c6af81962c5c2cfd8f72bbdd20f7cf9feccfbbf6e1f6"
    assert base("rte", 500, hidden_size=64, max_positions=128).fingerprint == first


def test_another_optimizer_keeps_how_the_learning_rate_falls() -> None:
    spec = OptimizerSpec(schedule="stable", decay_fraction=0.5, decay_end=0.1, warmup=0.2)
    for recipe in (EmbedRecipe(optimizer=spec), FinetuneRecipe(task="x", steps=9, optimizer=spec)):
        changed = recipe.changed({"optimizer": "lamb"}).optimizer
        assert (changed.name, changed.schedule, changed.warmup) == ("lamb", "stable", 0.2)
        assert (changed.decay_fraction, changed.decay_end) == (0.5, 0.1)
