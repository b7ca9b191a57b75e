"""Connecting to Ray: what it may not do unasked, and what is said where it fails. Real clusters are
in tests/serve/test_ray_app.py, tests/data/test_build.py and tests/lab."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from litebert import cluster
from litebert.cluster import connected_ray, import_ray, start_ray
from litebert.errors import LitebertError, MissingExtraError


class FakeRay:
    """Records what it is asked; nobody listens at any address."""

    exceptions = SimpleNamespace(RayError=ConnectionError)

    def __init__(self) -> None:
        self.connected = False
        self.options: dict[str, Any] = {}

    def init(self, **options: Any) -> None:
        self.options = options
        if options["address"] != "local":
            raise ConnectionError("nobody listens\na long trace")
        self.connected = True

    def is_initialized(self) -> bool:
        return self.connected

    def shutdown(self) -> None:
        self.connected = False


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setattr(cluster, "import_ray", lambda: fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return fake


def test_a_cluster_of_our_own_has_a_token_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    names = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    tokens = set()
    for environment in ({}, {}, {"RAY_ADDRESS": "first:6379"}, {"RAY_AUTH_TOKEN": "given"}):
        for name in (*names, "RAY_USAGE_STATS_ENABLED"):
            monkeypatch.setenv(name, "")  # put back afterwards
            monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(MissingExtraError, match="--runner ray needs the package"):
            import_ray()
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        tokens.add(os.environ.get("RAY_AUTH_TOKEN"))
    assert {None, "given"} < tokens
    assert sorted(len(token) for token in tokens if token) == [5, 64, 64]


def test_a_cluster_of_our_own_ends_with_what_needed_it(ray: FakeRay) -> None:
    with connected_ray(num_cpus=3):
        assert ray.options["num_cpus"] == 3
        with connected_ray(num_cpus=1):
            assert ray.options["num_cpus"] == 3, "connected already"
        assert ray.connected
    assert not ray.connected


def test_a_cluster_that_does_not_answer_is_named(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "first:6379")
    with pytest.raises(
        LitebertError, match="cannot reach the Ray cluster at first:6379: nobody listens; start it"
    ):
        start_ray(num_cpus=1)
