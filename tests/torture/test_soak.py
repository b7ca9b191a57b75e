"""What the soak of the service calls broken."""

from typing import Any

import pytest

from torture import serve

GOOD: dict[str, Any] = {
    "statuses": {"200": 90, "429": 9, "504": 1},
    "growth": 0.01,
    "health_seconds_with_slow_connections": 0.02,
    "accepted_at_sigterm": 60,
    "answers_after_sigterm": {"200": 58, "504": 2, "503": 5},
    "exit_code": 0,
    "tracebacks": 0,
}


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        ({"statuses": {"200": 90, "500": 1}}, "statuses"),
        ({"statuses": {"200": 90, "none": 1}}, "statuses"),
        ({"statuses": {"429": 90}}, "statuses"),
        ({"growth": 0.06}, "memory"),
        ({"health_seconds_with_slow_connections": 0.11}, "slow connections"),
        ({"answers_after_sigterm": {"200": 60, "cut": 4}}, "SIGTERM"),
        ({"answers_after_sigterm": {"200": 58, "503": 7}}, "SIGTERM"),
        ({"accepted_at_sigterm": 0}, "SIGTERM"),
        ({"exit_code": 75}, "exit code"),
        ({"tracebacks": 1}, "tracebacks"),
    ],
)
def test_each_promise_can_break(change: dict[str, Any], promise: str) -> None:
    assert serve.broken(GOOD) == []
    assert serve.broken(GOOD | change) == [promise]


def test_growth_leaves_the_warm_up_out() -> None:
    assert serve.growth([10, 50, 100, 100, 100, 100, 100, 100, 100, 110]) == pytest.approx(0.05)
    assert serve.growth([100, 100]) == 0
    assert serve.growth([100]) == 0
    steady = [50.0, 80.0, *[100.0] * 8]
    assert serve.growth(steady) == 0
    assert serve.growth([*steady[:8], 108.0, 108.0]) == pytest.approx(0.08)
