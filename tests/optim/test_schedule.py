"""The rate at each step: Google's numbers for the paper's run, and the laws of every form."""

import math
from typing import get_args

import pytest

from litebert.errors import ConfigError
from litebert.optim.schedule import learning_rate_at, scaled_learning_rate
from litebert.recipes import OptimizerSpec, Schedule, named

JOINED = [decay for decay in get_args(Schedule) if decay != "reference"]


def test_paper_recipe_has_the_reference_rates() -> None:
    spec = named("paper").optimizer
    rates = {
        step: learning_rate_at(spec, step, 125_000)
        for step in (0, 1, 3_124, 3_125, 62_500, 124_999, 125_000, 200_000)
    }
    assert rates[0] == 0.0
    assert rates[1] == pytest.approx(1.76e-3 / 3_125)
    assert rates[3_124] == pytest.approx(1.76e-3 * 3_124 / 3_125)
    assert rates[3_125] == pytest.approx(1.716e-3)  # the drop: decay was counted from step 0
    assert rates[62_500] == pytest.approx(0.88e-3)
    assert rates[124_999] == pytest.approx(1.76e-3 / 125_000)
    assert rates[125_000] == rates[200_000] == 0.0


def test_reference_with_power_and_end() -> None:
    spec = OptimizerSpec(
        learning_rate=1.0, warmup=0, schedule="reference", decay_power=2.0, decay_end=0.1
    )
    assert learning_rate_at(spec, 50, 100) == pytest.approx(0.1 + 0.9 * 0.25)
    assert learning_rate_at(spec, 100, 100) == pytest.approx(0.1)


@pytest.mark.parametrize("decay", JOINED)
@pytest.mark.parametrize("warmup", [0, 1, 30, 0.1])
@pytest.mark.parametrize("end", [0.0, 0.25])
def test_laws_of_the_joined_forms(decay: Schedule, warmup: float, end: float) -> None:
    spec = OptimizerSpec(
        learning_rate=2.0,
        warmup=warmup,
        schedule=decay,
        decay_end=end,
        decay_power=1.5,
        decay_fraction=0.3,
    )
    rates = [learning_rate_at(spec, step, 200) for step in range(201)]
    top = spec.warmup_steps(200)
    assert all(0 < rate <= 2.0 for rate in rates[:200])
    assert max(rates) == rates[top] == 2.0  # the peak is reached, and warm-up joins it
    assert rates[:top] == pytest.approx([2.0 * (step + 1) / top for step in range(top)])
    assert all(
        later <= earlier for earlier, later in zip(rates[top:], rates[top + 1 :], strict=False)
    )
    assert rates[200] == pytest.approx(2.0 if decay == "constant" else 2.0 * end)
    assert learning_rate_at(spec, 1000, 200) == rates[200]


@pytest.mark.parametrize(
    ("decay", "expected"),
    [("linear", 0.5), ("polynomial", 0.25), ("cosine", 0.5), ("constant", 1.0), ("stable", 1.0)],
)
def test_half_way(decay: Schedule, expected: float) -> None:
    spec = OptimizerSpec(learning_rate=1.0, warmup=20, schedule=decay, decay_power=2.0)
    assert learning_rate_at(spec, 60, 100) == pytest.approx(expected)


def test_stable_falls_over_the_stated_part_of_the_run() -> None:
    spec = OptimizerSpec(learning_rate=1.0, warmup=20, schedule="stable", decay_fraction=0.2)
    assert [learning_rate_at(spec, step, 100) for step in (20, 80, 90, 95)] == pytest.approx(
        [1.0, 1.0, 0.5, 0.25]
    )
    always = OptimizerSpec(learning_rate=1.0, warmup=20, schedule="stable", decay_fraction=1.0)
    assert learning_rate_at(always, 60, 100) == pytest.approx(0.5)


def test_a_run_that_is_all_warmup_has_a_rate() -> None:
    for decay in get_args(Schedule):
        spec = OptimizerSpec(learning_rate=1.0, warmup=10, schedule=decay)
        assert all(0 <= learning_rate_at(spec, step, 10) <= 1 for step in range(12))


def test_root_rule() -> None:
    assert scaled_learning_rate(1.76e-3, 4096, 4096) == 1.76e-3
    assert scaled_learning_rate(1.76e-3, 1024, 4096) == pytest.approx(0.88e-3)
    assert scaled_learning_rate(5e-4, 64, reference_batch_size=256) == pytest.approx(2.5e-4)
    assert scaled_learning_rate(1.0, 512, 4096) / scaled_learning_rate(
        1.0, 256, 4096
    ) == pytest.approx(math.sqrt(2))
    with pytest.raises(ConfigError, match="batch sizes are at least 1; got 0 and 4096"):
        scaled_learning_rate(1.0, 0, 4096)
