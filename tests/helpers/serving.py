"""A service on a loopback port, in a thread, and a plain client for it."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from litebert.serve.access import Access
from litebert.serve.app import Limits, Service
from litebert.serve.models import Models
from litebert.serve.server import Server, bind

HANGS = 120.0
"""Seconds after which a test gives up."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])


class Running(NamedTuple):
    """A service that listens."""

    service: Service
    server: Server
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer to one request; `body` may be bytes that are sent as they are."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS)
        try:
            method = method or ("GET" if body is None else "POST")
            connection.request(method, path, data, dict(headers or {}))
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, response.read())
        finally:
            connection.close()


@contextmanager
def serving(
    models: Models | None,
    *,
    limits: Limits | None = None,
    access: Access | None = None,
    service: Service | None = None,
) -> Iterator[Running]:
    """A service with these models; None leaves it as it is while models are loaded."""
    service = service or Service(access=access or Access(host="127.0.0.1"), limits=limits)
    go_on = threading.Event()

    def load() -> Models:
        if models is None:
            go_on.wait()
            return Models([])
        return models

    server = Server(service, load)
    listener = bind("127.0.0.1", 0)
    thread = threading.Thread(target=server.run_at, args=(listener,))
    thread.start()
    try:
        wait_for(lambda: server.started and (models is None or service.is_ready))
        yield Running(service, server, listener.getsockname()[1])
    finally:
        go_on.set()
        wait_for(lambda: service.is_ready)
        server.stop()
        thread.join(HANGS)
        assert not thread.is_alive()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
