"""Laws of choosing an ensemble: no worse than its best model or all of them, and halves that do not
see each other."""

import numpy as np
import pytest

from litebert.tasks.examples import TaskExample, TextExample
from litebert.tasks.heads.heads import average
from litebert.tasks.predictions import LabelPrediction, Prediction
from litebert.tasks.scores.score import score
from litebert.train.ensemble import choose_on_dev
from tests.helpers.predictions import TASKS, made_models


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_an_ensemble_is_no_worse_than_its_best_model(kind: str) -> None:
    task, examples, said = made_models(kind, [0.6, 0.75, 0.7, 0.65])
    actual = choose_on_dev(task, examples, said)
    name = task.scores[0]
    assert actual.together[name] >= max(single[name] for single in actual.singles) - 1e-12
    assert actual.together[name] >= actual.everyone[name] - 1e-12
    assert len(actual.steps) == len(set(actual.members))
    assert actual.steps[-1] == pytest.approx(actual.together[name])
    assert actual.singles == tuple(score(task, examples, each) for each in said)
    assert actual.everyone == score(task, examples, average(task, said))
    assert actual.singles[actual.members[0]][name] == max(single[name] for single in actual.singles)


def test_models_that_err_apart_are_better_together() -> None:
    task, examples, said = made_models("classify", [0.8] * 7, size=400)
    actual = choose_on_dev(task, examples, said)
    assert len(actual.members) > 1
    assert min(actual.together["accuracy"], actual.crossed["accuracy"]) > max(
        single["accuracy"] for single in actual.singles
    )


def test_a_model_that_says_nothing_new_is_left_out() -> None:
    task, examples, said = made_models("classify", [0.8, 0.3])
    actual = choose_on_dev(task, examples, [said[0], said[0], said[1]])
    assert actual.members == (0,)


def test_choosing_flatters_and_the_crossed_score_shows_it() -> None:
    """Coins are chosen for their luck: on the half that they were not chosen on they are coins."""
    draw, task = np.random.default_rng(1), TASKS["classify"]
    examples: list[TaskExample] = [
        TextExample(key=str(n), first="", label=str(draw.choice(["no", "yes"]))) for n in range(300)
    ]

    def coin() -> list[Prediction]:
        chances = draw.random(300)
        labels = ["yes" if chance > 0.5 else "no" for chance in chances]
        return [
            LabelPrediction(label=label, probabilities={"no": 1 - p, "yes": p})
            for label, p in zip(labels, chances, strict=True)
        ]

    actual = choose_on_dev(task, examples, [coin() for _ in range(12)])
    assert actual.together["accuracy"] > 0.55
    assert abs(actual.crossed["accuracy"] - 0.5) < 0.03


def test_one_model_is_an_ensemble() -> None:
    task, examples, said = made_models("regress", [0.5], size=1)
    actual = choose_on_dev(task, examples, said)
    assert (actual.members, actual.crossed) == ((0,), actual.singles[0])
