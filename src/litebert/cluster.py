"""Ray, for `--runner ray`: connect to the cluster that RAY_ADDRESS names, or start one on this
machine. Nothing is reported to its makers, and no token is left in a file."""

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from litebert.errors import LitebertError, MissingExtraError


def import_ray() -> Any:
    """ray with ray.serve; MissingExtraError where they are not installed."""
    _prepare_environment()
    try:
        ray = import_module("ray")
        import_module("ray.serve")
    except ImportError as error:
        raise MissingExtraError("ray[serve]", extra="ray", purpose="--runner ray") from error
    return ray


def start_ray(*, num_cpus: int, log_to_driver: bool = False) -> Any:
    """ray, connected to the cluster of RAY_ADDRESS, or to one of `num_cpus` on this machine that
    ends with this process. Called by the main thread, which alone may set signal handlers."""
    ray = import_ray()
    address = os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {"address": address}
    if not address:
        options = {"address": "local", "num_cpus": num_cpus, "include_dashboard": False}
    try:
        ray.init(**options, log_to_driver=log_to_driver, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        where = f"reach the Ray cluster at {address}" if address else "start a Ray cluster"
        remedy = (
            "; start it with ray start, and give this process its RAY_AUTH_TOKEN if it has one"
            if address
            else ""
        )
        raise LitebertError(f"cannot {where}: {str(error).splitlines()[0]}{remedy}") from error
    return ray


@contextlib.contextmanager
def connected_ray(*, num_cpus: int) -> Iterator[Any]:
    """ray as this process is connected already, else as `start_ray` connects it until the end."""
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    ray = start_ray(num_cpus=num_cpus)
    try:
        yield ray
    finally:
        ray.shutdown()


def _prepare_environment() -> None:
    """What Ray reads when it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if os.environ.get("RAY_ADDRESS"):
        return
    # a cluster of our own lets nobody else in, and its token is in no file
    if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token" and not (
        os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    ):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
