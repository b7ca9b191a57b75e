"""The service as an ASGI application: access, limits and routes around the scheduler.

A request passes the rules of access, waits for a ready service, is read within limits, becomes a
job, and is answered; whoever disconnects takes their job out of the queue. Every error is JSON with
one sentence. Nothing that a client sent is logged.
"""

import asyncio
import contextlib
import math
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from litebert import __version__
from litebert.errors import LitebertError
from litebert.files import to_json
from litebert.serve import openai, tei
from litebert.serve.access import Access, request_id, response_headers
from litebert.serve.metrics import Metrics
from litebert.serve.models import Key, Models
from litebert.serve.openapi import document
from litebert.serve.requests import MAX_BODY_BYTES, MAX_ITEMS, RequestError, read_object
from litebert.serve.runners import Layered
from litebert.serve.scheduler import (
    DeadlineError,
    Job,
    QueueFullError,
    QueueSizes,
    Runner,
    Scheduler,
)
from litebert.serve.verbs import VERBS, Work, items_field, read_work
from litebert.terminal import write_stderr

PAGE = Path(__file__).parent / "page"
"""Static files of the page at /."""
_DISCARDED_BYTES = 16 * 2**20
"""Of a body that is too large, what is read before the answer: most clients read it only then."""
_SMALL_BYTES = 16_384
"""Of a body; the answer to a longer one is encoded beside the event loop."""
_MANY_VALUES = 4096
"""Of an answer; one with so many is encoded beside the event loop too."""
_SHORT_BYTES = 4096
"""Of a body; its texts are tokenized in less than a millisecond."""
_DEADLINE_HEADER = "x-request-timeout"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
Handler = Callable[["Service", dict[str, Any], "Call"], Awaitable[Any]]
"""From a body to the JSON of its response."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one service accepts."""

    timeout_seconds: float = 30.0
    """For a request, from its first byte to its results."""
    batch_tokens: int | None = None
    """Tokens that are computed at once; None for what suits the batching."""
    queue_tokens: int = 131_072
    """Tokens that may wait; more are refused."""
    body_bytes: int = MAX_BODY_BYTES


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request that is being answered."""

    deadline: float
    receive: Receive
    identifier: str
    num_bytes: int = 0
    """Of the body."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of the response, beside what every response has."""

    async def read(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function makes of the body: in a thread, so that the event loop is free, unless
        that takes longer than a short body does."""
        if self.num_bytes <= _SHORT_BYTES:
            return function(*args)
        return await asyncio.to_thread(function, *args)


class Queue(Protocol):
    """Where jobs go: the scheduler of this process, or replicas (ray_app.py)."""

    def submit(self, job: Job) -> None: ...
    def stop(self) -> None: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def sizes(self) -> QueueSizes: ...
    @property
    def waiting_seconds(self) -> float: ...


class Service:
    """Models, the scheduler and the state that routes share."""

    def __init__(
        self,
        *,
        access: Access,
        limits: Limits | None = None,
        metrics: Metrics | None = None,
        scheduler: Queue | None = None,
    ) -> None:
        """By default jobs are computed by this process."""
        self.access = access
        self.limits = limits or Limits()
        self.models = Models([])
        self.metrics = metrics or Metrics()
        self.scheduler: Queue = scheduler or Scheduler(
            self._runner,
            queue_tokens=self.limits.queue_tokens,
            on_tick=self.metrics.count_tick,
            on_served=self.metrics.count_served,
        )
        self.is_ready = False
        self.is_draining = False
        self.accepted = 0
        """Requests that are being answered."""
        self.reading: set[asyncio.Timeout] = set()
        """Of requests whose body is arriving."""
        self.posts: dict[str, Handler] = {
            "/v1/embeddings": openai.embeddings,
            "/embeddings": openai.embeddings,
            **{f"/v1/{verb}": partial(_verb, verb) for verb in (*VERBS, "layers")},
            **tei.HANDLERS,
            "/v1/rerank": tei.cohere_rerank,
        }
        """By path."""
        self.app: ASGIApp = _Guard(self, _routes(self))

    def open(self, models: Models) -> None:
        self.models = models
        self.is_ready = True

    def close(self) -> None:
        """Finish what was accepted."""
        self.is_draining = True
        self.scheduler.stop()

    def stop_reading(self) -> None:
        """Refuse requests whose body is still arriving."""
        for timeout in self.reading:
            if not timeout.expired():
                timeout.reschedule(0)

    def check_state(self) -> None:
        if self.is_draining:
            raise RequestError(503, "the service is stopping; ask another one", retry_after=5)
        if not self.is_ready:
            raise RequestError(503, "the models are being loaded; try again", retry_after=2)

    def check_queue(self) -> None:
        if self.scheduler.is_full:
            raise self._too_busy()

    async def run(self, work: Work, call: Call) -> list[Any]:
        """The results of the work; RequestError where there are none in time."""
        job = Job(work.key, work.items, work.sizes, deadline=call.deadline)
        try:
            self.scheduler.submit(job)
        except QueueFullError:
            raise self._too_busy() from None
        future = asyncio.wrap_future(job.future)
        # nobody waits for a job that the scheduler drops just after its client was answered
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        leaving = asyncio.ensure_future(_disconnected(call.receive))
        try:
            both: set[asyncio.Future[Any]] = {future, leaving}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                raise ClientDisconnect
            return list(future.result())
        except DeadlineError:
            raise _late() from None
        except LitebertError as error:
            raise RequestError(422, str(error)) from error
        finally:
            job.future.cancel()
            leaving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leaving

    def _too_busy(self) -> RequestError:
        seconds = math.ceil(min(max(self.scheduler.waiting_seconds, 1), 60))
        return RequestError(
            429,
            "too many texts wait already; try again later",
            retry_after=seconds,
            code="overloaded",
        )

    def _runner(self, key: Key) -> Runner:
        return self.models.runner(key, self.limits.batch_tokens)


class _Endpoint:
    """A POST route: an ASGI application that reads a JSON body and answers with JSON."""

    def __init__(self, service: Service, handler: Handler) -> None:
        self._service, self._handler = service, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service = self._service
        service.check_state()
        service.check_queue()
        request = Request(scope, receive)
        call = Call(
            deadline=time.monotonic() + self._seconds(request),
            receive=receive,
            identifier=scope["litebert.request_id"],
        )
        body = await self._read(request, call.deadline)
        call = replace(call, num_bytes=len(body))
        service.check_state()
        service.accepted += 1
        try:
            async with asyncio.timeout_at(_loop_time(call.deadline)):
                answer = await self._handler(service, read_object(body), call)
            if len(body) > _SMALL_BYTES or count_values(answer, _MANY_VALUES) >= _MANY_VALUES:
                response = await asyncio.to_thread(_json, answer)
            else:
                response = _json(answer)
            response.headers.update(call.headers)
            await response(scope, receive, send)
        except TimeoutError:
            raise _late() from None
        finally:
            service.accepted -= 1

    def _seconds(self, request: Request) -> float:
        most = self._service.limits.timeout_seconds
        sent = request.headers.get(_DEADLINE_HEADER)
        if sent is None:
            return most
        try:
            seconds = float(sent)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise RequestError(400, f"the header {_DEADLINE_HEADER} is a number of seconds above 0")
        return min(seconds, most)

    async def _read(self, request: Request, deadline: float) -> bytes:
        limit = self._service.limits.body_bytes
        too_large = RequestError(
            413, f"the body is larger than {limit:,} bytes; send several requests"
        )
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > _DISCARDED_BYTES:
            raise too_large
        body, received = bytearray(), 0
        timeout = asyncio.timeout_at(_loop_time(deadline))
        self._service.reading.add(timeout)
        try:
            async with timeout:
                async for chunk in request.stream():
                    received += len(chunk)
                    if received <= limit:
                        body += chunk
                    elif received > _DISCARDED_BYTES:
                        break
        except TimeoutError:
            self._service.check_state()
            raise RequestError(408, "the body did not arrive in time") from None
        finally:
            self._service.reading.discard(timeout)
        if received > limit:
            raise too_large
        return bytes(body)


class _Guard:
    """Around all routes: access, headers, errors."""

    def __init__(self, service: Service, app: ASGIApp) -> None:
        self._service, self._app = service, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        pairs = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
        ]
        headers = dict(pairs)
        is_page = path == "/" or path.startswith("/page/")
        kind = ""
        allowed: dict[str, str] = {}
        scope["app"] = self  # starlette then raises what it would answer as plain text
        scope["litebert.request_id"] = identifier = request_id(headers)
        added = response_headers(identifier, is_page=is_page)
        started, began = False, time.monotonic()
        is_counted = path in self._service.posts

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if is_counted:
                    self._service.metrics.count_request(
                        path, message["status"], time.monotonic() - began, error=kind
                    )
                message["headers"] = [*message["headers"], *added]
                if self._service.is_draining:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            num_hosts = sum(name == "host" for name, _ in pairs)
            self._service.access.check(path, headers, num_hosts=num_hosts, is_page=is_page)
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:  # by a service that ends
            refused = RequestError(503, "the service has stopped; ask another one", retry_after=5)
        except RequestError as error:
            refused = error
        except HTTPException as error:
            refused = RequestError(error.status_code, _PLAIN.get(error.status_code, error.detail))
            allowed = dict(error.headers or {})
        except Exception as error:
            if started:
                return
            log_error(error, identifier)
            refused = RequestError(
                500, "the service failed; its log has the place", code="internal"
            )
        else:
            return
        kind = refused.code or refused.type
        if not started:
            response = _refusal(refused, path)
            response.headers.update(allowed)
            await response(scope, receive, send_with_headers)


_PLAIN = {
    404: "there is nothing at this path; GET /openapi.json lists what there is",
    405: "this path is called with another method; GET /openapi.json says which",
}


def _refusal(error: RequestError, path: str) -> Response:
    form = tei.error_object if path in tei.HANDLERS else openai.error_object
    response = _json(form(error), status=error.status)
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    if error.status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if error.status in (408, 413):  # what remains of the body is not read
        response.headers["connection"] = "close"
    return response


def _json(value: Any, *, status: int = 200) -> Response:
    return Response(_encode(value), status_code=status, media_type="application/json")


def _encode(value: Any) -> str:
    """JSON, of long lists entry by entry: json.dumps lets no other thread run."""
    if isinstance(value, dict) and any(isinstance(each, dict | list) for each in value.values()):
        fields = (f"{to_json(name)}:{_encode(each)}" for name, each in value.items())
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return "[" + ",".join(map(_encode, value)) + "]"
    return _encode_one(value)


_encode_one = partial(to_json, ensure_ascii=False, separators=(",", ":"))


def count_values(value: Any, most: int) -> int:
    """Texts and numbers in JSON; about `most` where there are more."""
    if isinstance(value, dict):
        parts: Iterable[Any] = value.values()
    elif isinstance(value, list) and value and isinstance(value[0], dict | list):
        parts = value
    else:
        return len(value) if isinstance(value, list) else 1
    count = 0
    for part in parts:
        count += count_values(part, most - count)
        if count >= most:
            break
    return count


def _late() -> RequestError:
    return RequestError(504, "the deadline passed before the results were ready", code="timeout")


def _loop_time(deadline: float) -> float:
    """A time of time.monotonic() as the event loop counts it."""
    return asyncio.get_running_loop().time() + deadline - time.monotonic()


def log_error(error: BaseException, identifier: str = "") -> None:
    """The kind and the place of an error, and the request's id: its message may hold a text."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    request = identifier and f", request {identifier}"
    name = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
    write_stderr(f"litebert serve: {name}{request}")


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _routes(service: Service) -> ASGIApp:
    def get(path: str, make: Callable[[Request], Any], *, any_time: bool = False) -> Route:
        async def answer(request: Request) -> Response:
            if not any_time:
                service.check_state()
            return _json(make(request))

        return Route(path, answer)

    def models() -> list[Any]:
        return [model.describe() for model in service.models.served.values()]

    def model(request: Request) -> Any:
        return service.models.named(request.path_params["name"]).describe()

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        files = {path.name: path for path in PAGE.glob("*") if path.suffix in _MEDIA_TYPES}
        if name not in files:
            raise HTTPException(404)
        content = await asyncio.to_thread(files[name].read_bytes)
        return Response(content, headers={"content-type": _MEDIA_TYPES[files[name].suffix]})

    async def metrics(request: Request) -> Response:
        is_ready = service.is_ready and not service.is_draining
        text = service.metrics.text(service.scheduler.sizes, is_ready=is_ready)
        return Response(text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    routes = [
        Route("/", page),
        Route("/page/{name}", page),
        get("/health", lambda request: {"status": "alive"}, any_time=True),
        get("/ready", lambda request: {"status": "ready"}),
        get("/info", lambda request: _describe(service)),
        get("/openapi.json", lambda request: document(), any_time=True),
        get("/v1/models", lambda request: {"object": "list", "data": models()}),
        get("/v1/models/{name}", model),
        Route("/metrics", metrics),
        *(
            Route(path, _Endpoint(service, handler), methods=["POST"])
            for path, handler in service.posts.items()
        ),
    ]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return app.router


async def _verb(verb: Any, service: Service, body: dict[str, Any], call: Call) -> Any:
    items_field(verb, body)
    model = service.models.choose(body.get("model"), verb)
    work = await call.read(read_work, verb, body, model)
    return {"model": model.name, "results": await service.run(work, call)}


def _describe(service: Service) -> dict[str, Any]:
    limits = service.limits
    models = [model.describe() for model in service.models.served.values()]
    runner = service.models.runner(Key(models[0]["id"], "embed"), limits.batch_tokens)
    return {
        "version": __version__,
        "models": models,
        "model_id": models[0]["id"],
        "model_dtype": "int8" if models[0]["int8"] else "float32",
        "max_input_length": models[0]["max_length"],
        "max_client_batch_size": MAX_ITEMS,
        "max_body_bytes": limits.body_bytes,
        "max_batch_tokens": runner.max_tokens,
        "batching": "depth" if isinstance(runner, Layered) else "static",
        "max_queue_tokens": limits.queue_tokens,
        "timeout_seconds": limits.timeout_seconds,
    }
