"""A service on a socket: loads the models while health answers, drains at SIGTERM."""

import asyncio
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from litebert.errors import ConfigError, InterruptedRunError
from litebert.serve.app import Service
from litebert.serve.models import Models

DRAIN_SLACK_SECONDS = 5.0
"""Beyond the deadline of the last request, for what is still being sent."""
BACKLOG = 2048
"""Connections that wait to be accepted."""
HEAD_SECONDS = 10
"""For the head of a request, from the start of its connection or the last response."""


class _Protocol(H11Protocol):
    """uvicorn's, which waits for ever for the first request of a connection, and for the rest of a
    head."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_at(self.loop.time() + self.timeout_keep_alive)

    def data_received(self, data: bytes) -> None:
        timer = self.timeout_keep_alive_task
        super().data_received(data)  # which forgets the timer
        if timer is not None and self.conn.their_state is h11.IDLE:
            self._close_at(timer.when())

    def _close_at(self, when: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_at(when, self.timeout_keep_alive_handler)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 for a free one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sends at once (TCP_NODELAY) only where the protocol is named; else a body waits
        # 40 ms for the acknowledgment of its head
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # clients that come before the event loop wait
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot listen at {host}, port {port}: {error}; choose another --host or --port"
        ) from error
    return listener


class Server(uvicorn.Server):
    """uvicorn's server that finishes what was accepted before it stops."""

    def __init__(self, service: Service, load: Callable[[], Models]) -> None:
        """`load` opens the models, in a thread of its own."""
        config = uvicorn.Config(
            service.app,
            lifespan="off",
            ws="none",
            http=_Protocol,
            loop="asyncio",
            access_log=False,
            log_config=None,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=HEAD_SECONDS,
            timeout_graceful_shutdown=int(DRAIN_SLACK_SECONDS),
        )
        super().__init__(config)
        self.service, self._load = service, load
        self.failure: BaseException | None = None
        self.on_ready: Callable[[], None] = lambda: None
        self._stop_at = 0.0

    def run_at(self, listener: socket.socket) -> None:
        """Serve until stopped. InterruptedRunError where work was cut off."""
        loading = threading.Thread(target=self._open, name="litebert-load", daemon=True)
        loading.start()
        try:
            asyncio.run(self.serve(sockets=[listener]))
        finally:
            self.stop()
            try:
                loading.join()  # until a second signal
            finally:
                self.service.close()
        if self.failure is not None:
            raise self.failure
        if self.force_exit or not self.service.is_ready:
            raise InterruptedRunError("stopped before all work was done")

    def stop(self) -> None:
        """Accept no more, finish what was accepted, then stop."""
        if not self.service.is_draining:
            limit = self.service.limits.timeout_seconds + DRAIN_SLACK_SECONDS
            self._stop_at = time.monotonic() + limit
            self.service.is_draining = True

    async def on_tick(self, counter: int) -> bool:
        if self.service.is_draining and not self.should_exit:
            self.service.stop_reading()
            is_late = time.monotonic() >= self._stop_at
            self.should_exit = is_late or self.service.accepted == 0
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.service.is_draining:  # asked a second time
            self.force_exit = self.should_exit = True
        self.stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but a handled signal is not raised again: a drained service exits
        with 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGINT)
        before: dict[int, Any] = {
            number: signal.signal(number, self.handle_exit) for number in numbers
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _open(self) -> None:
        try:
            models = self._load()
        except BaseException as error:
            self.failure = error
            self.should_exit = True
            return
        self.service.open(models)
        if not self.service.is_draining:
            self.on_ready()
