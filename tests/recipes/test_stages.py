"""Stages: the value at a step, the text form as an exact inverse, and refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.errors import ConfigError
from litebert.recipes import FractionStages, Stages


@st.composite
def stages(draw: st.DrawFn) -> Stages:
    kind = draw(st.sampled_from([st.integers(1, 10**6), st.floats(0.001, 0.999)]))
    starts = sorted(draw(st.sets(kind, max_size=5)))
    values = draw(
        st.lists(st.integers(1, 10**6), min_size=len(starts) + 1, max_size=len(starts) + 1)
    )
    return Stages(tuple(zip([0, *starts], values, strict=True)))


@given(stages())
def test_text_form_is_exact(value: Stages) -> None:
    assert Stages.parse(str(value)) == value


@given(stages(), st.integers(1, 2_000))
def test_each_step_has_the_value_of_the_latest_start(value: Stages, steps: int) -> None:
    starts = value.starts(steps)
    for step in {0, steps - 1, *(start for start in starts if start < steps)}:
        latest = max(index for index, start in enumerate(starts) if start <= step)
        assert value.at(step, steps) == value.values[latest]


def test_depth_as_in_the_warm_start() -> None:
    depth = Stages(((0, 3), (0.1, 6), (0.25, 12)))
    assert [depth.at(step, 1000) for step in (0, 99, 100, 249, 250, 999)] == [3, 3, 6, 6, 12, 12]
    assert str(depth) == "0:3,0.1:6,0.25:12"
    assert depth.starts(3) == (0, 0, 1)
    assert depth.at(0, 3) == 6  # three steps fold the first stage away


def test_fractions_by_stage() -> None:
    masked = FractionStages.parse("0:0.35,0.8:0.15")
    assert [masked.at(step, 10) for step in (0, 7, 8, 9)] == [0.35, 0.35, 0.15, 0.15]
    assert str(masked) == "0:0.35,0.8:0.15"
    assert FractionStages.parse("0.15") == FractionStages.constant(0.15)
    assert FractionStages.parse(str(FractionStages.constant(1 / 3))).values == (1 / 3,)
    assert not masked.is_constant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("15%", r"stages are a number \(0\.15\) or start:value pairs \(0:0\.35,0\.8:0\.15\)"),
        ("0.5:0.15", "the first stage starts at 0, as in 0:0.35,0.8:0.15; got 0.5:0.15"),
        ("0:0.3,0.5:1", "the value of a stage is a fraction from 0 to 1; got 1.0"),
        ("nan", "the value of a stage is a fraction from 0 to 1; got nan"),
    ],
)
def test_wrong_fractions_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FractionStages.parse(text)


def test_by_step_and_constant() -> None:
    batch = Stages.parse("0:128,500:256")
    assert [batch.at(step, 600) for step in (0, 499, 500)] == [128, 128, 256]
    assert Stages.parse("64") == Stages.constant(64)
    assert str(Stages.constant(64)) == "64"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "stages are a number"),
        ("many", r"stages are a number \(128\) or start:value pairs .*got 'many'"),
        ("0:1:2", "stages are a number"),
        ("5:128", "the first stage starts at 0, as in 0:128,0.5:512; got 5:128"),
        ("0:128,-3:2", "a stage starts at a step"),
        ("0:128,1.5:2", r"at a fraction of the run \(0\.25\); got 1\.5"),
        ("0:128,0.5:2,600:3", "not at both"),
        ("0:128,0.5:2,0.5:3", "each stage starts after the one before"),
        ("0:0", "the value of a stage is a whole number from 1; got 0"),
    ],
)
def test_wrong_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Stages.parse(text)


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="got no stage"):
        Stages(())
    with pytest.raises(ConfigError, match="a stage starts at a step"):
        Stages(((0, 1), (float("nan"), 2)))
    with pytest.raises(ConfigError, match="whole number from 1; got True"):
        Stages(((0, True),))
