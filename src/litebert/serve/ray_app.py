"""litebert serve --runner ray: the same service, whose models compute in replicas on a Ray cluster.

The command's own process listens, checks access and limits, tokenizes, and answers; Ray Serve
starts the replicas, spreads jobs over them, replaces those that die, and scales them. A replica is
a service without a socket: models, and the scheduler that batches what it is sent. A job whose
replica dies is sent to another one, so that nobody is refused for it.
"""

import asyncio
import contextlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from litebert.cluster import start_ray
from litebert.errors import ConfigError, InterruptedRunError, LitebertError
from litebert.serve.access import Access
from litebert.serve.app import Limits, Service, log_error
from litebert.serve.metrics import Metrics
from litebert.serve.models import Key, LoadOptions, Models, load_models
from litebert.serve.requests import RequestError
from litebert.serve.scheduler import DeadlineError, Job, QueueFullError, QueueSizes

ATTEMPTS = 3
"""Replicas that a job is sent to, one after the other, as each of them dies."""
_ONGOING = 1024
"""Jobs in one replica; its scheduler forms the batches."""
_TARGET_ONGOING = 16
"""Jobs in one replica above which another one is started."""
DRAIN_SLACK_SECONDS = 5.0
_DEPLOYMENT = "litebert"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What is asked of Ray."""

    replicas: int = 1
    """Processes with the models; with `max_replicas` the fewest."""
    max_replicas: int | None = None
    """The most, as the load asks for them; None for always as many."""
    cpus: int = 1
    """Processors of each replica."""
    gpus: int = 0
    """GPUs of each replica."""
    name: str = "litebert"
    """Of the application on the cluster."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ConfigError(f"replicas is at least 1; got {self.replicas}")
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ConfigError(
                f"max_replicas is at least the number of replicas, {self.replicas}; got "
                f"{self.max_replicas}"
            )

    @property
    def most(self) -> int:
        return self.replicas if self.max_replicas is None else self.max_replicas


def application_name(port: int) -> str:
    """One for each host and port: a service that is started again replaces what it left."""
    host = re.sub(r"[^a-zA-Z0-9]+", "-", socket.gethostname())
    return f"litebert-{host}-{port}"


class _Reply(NamedTuple):
    """What a replica gives back for a job."""

    results: list[Any]
    failure: Literal["", "late", "full", "refused", "failed"]
    """Empty where there are results."""
    message: str
    events: list[tuple[str, Any]]
    """What the replica counted since its last reply: methods of Metrics with their argument."""


class _Recorder(Metrics):
    """Keeps what a replica counts, for the process that answers /metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, Any]] = []

    def count_tick(self, tick: Any) -> None:
        self.events.append(("count_tick", tick))

    def count_served(self, served: Any) -> None:
        self.events.append(("count_served", served))

    def take(self) -> list[tuple[str, Any]]:
        taken, self.events = self.events, []
        return taken


class Replica:
    """A process of the cluster that computes."""

    def __init__(self, options: LoadOptions, limits: Limits) -> None:
        self._recorder = _Recorder()
        self._service = Service(
            access=Access(host="localhost"), limits=limits, metrics=self._recorder
        )
        self._service.open(load_models(options))

    async def run(
        self, key: Key, items: Sequence[Any], sizes: Sequence[int], seconds: float
    ) -> _Reply:
        """The results of a job that has this many seconds left."""
        job = Job(key, items, sizes, deadline=time.monotonic() + seconds)
        results: list[Any] = []
        failure: Literal["", "late", "full", "refused", "failed"] = ""
        message = ""
        try:
            self._service.scheduler.submit(job)
            results = await asyncio.wrap_future(job.future)
        except DeadlineError:
            failure = "late"
        except QueueFullError:
            failure = "full"
        except LitebertError as error:
            failure, message = "refused", str(error)
        except Exception as error:  # Ray would log its message, which may hold a text
            log_error(error)
            failure = "failed"
        finally:
            job.future.cancel()
        return _Reply(results, failure, message, self._recorder.take())

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # where __init__ failed
            self._service.close()


class RayScheduler:
    """In the place of the scheduler: sends jobs to replicas."""

    def __init__(self, metrics: Metrics, *, queue_tokens: int) -> None:
        self._metrics = metrics
        self.queue_tokens = queue_tokens
        self._handle: Any = None
        self._retried: tuple[type[BaseException], ...] = ()
        self._leave: Callable[[], None] = lambda: None
        self._jobs: dict[asyncio.Task[None], int] = {}
        """With their tokens."""
        self._seconds = 0.0

    def connect(self, ray: Any, handle: Any, leave: Callable[[], None]) -> None:
        """Send jobs to a deployment's handle; `leave` ends the deployment."""
        self._handle, self._leave = handle, leave
        self._retried = (
            ray.exceptions.RayActorError,
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.NodeDiedError,
            ray.serve.exceptions.ReplicaUnavailableError,
        )

    def submit(self, job: Job) -> None:
        """Send a job; its future will have the results. QueueFullError where too much is under
        way."""
        if self.is_full:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._forward(job))
        self._jobs[task] = sum(job.sizes)
        task.add_done_callback(self._jobs.pop)
        job.future.add_done_callback(
            lambda future: future.cancelled() and loop.call_soon_threadsafe(task.cancel)
        )

    @property
    def is_full(self) -> bool:
        return self.sizes.tokens >= self.queue_tokens

    @property
    def sizes(self) -> QueueSizes:
        return QueueSizes(len(self._jobs), sum(self._jobs.values()))

    @property
    def waiting_seconds(self) -> float:
        """How long a job took lately."""
        return self._seconds or 1.0

    def stop(self) -> None:
        """End the replicas; what was accepted is answered by now."""
        self._leave()

    async def _forward(self, job: Job) -> None:
        """A job through a replica, or through another one where that one dies."""
        began = time.monotonic()
        try:
            reply = await self._send(job)
        except Exception as error:
            self._finish(job, error)
            return
        seconds = time.monotonic() - began
        self._seconds = 0.9 * self._seconds + 0.1 * seconds if self._seconds else seconds
        for name, event in reply.events:
            getattr(self._metrics, name)(event)
        self._finish(job, _FAILURES[reply.failure](reply) if reply.failure else reply.results)

    async def _send(self, job: Job) -> _Reply:
        for _ in range(ATTEMPTS):
            seconds = job.deadline - time.monotonic()
            if seconds <= 0:
                raise DeadlineError
            response = self._handle.run.remote(job.key, job.items, job.sizes, seconds)
            try:
                reply: _Reply = await response
                return reply
            except self._retried:
                continue
            except asyncio.CancelledError:
                response.cancel()
                raise
        raise RequestError(
            503, "the replicas that computed the texts were lost; try again", retry_after=2
        )

    def _finish(self, job: Job, outcome: Any) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        if isinstance(outcome, Exception):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)


_FAILURES: dict[str, Callable[[_Reply], Exception]] = {
    "late": lambda reply: DeadlineError(),
    "full": lambda reply: RequestError(
        429, "too many texts wait already; try again later", retry_after=1, code="overloaded"
    ),
    "refused": lambda reply: LitebertError(reply.message),
    "failed": lambda reply: RequestError(
        500, "the service failed; its log has the place", code="internal"
    ),
}


def open_service(
    cluster: Cluster, options: LoadOptions, *, access: Access, limits: Limits
) -> tuple[Service, Callable[[], Models]]:
    """A service whose models compute on a cluster, and what opens them."""
    ray = start_ray(num_cpus=cluster.most * cluster.cpus, log_to_driver=True)
    if options.device == "auto":
        # Ray hides GPUs from a replica that asks for none, and the replica would not notice
        gpus = ray.cluster_resources().get("GPU", 0)
        has_gpus = options.engine in ("auto", "torch") and gpus >= cluster.most
        cluster = replace(cluster, gpus=int(has_gpus))
        options = options if has_gpus else replace(options, device="cpu")
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    metrics = Metrics()
    scheduler = RayScheduler(metrics, queue_tokens=limits.queue_tokens)
    service = Service(access=access, limits=limits, metrics=metrics, scheduler=scheduler)
    return service, lambda: deploy(ray, cluster, options, service, scheduler)


def deploy(
    ray: Any,
    cluster: Cluster,
    options: LoadOptions,
    service: Service,
    scheduler: RayScheduler,
) -> Models:
    """Start the replicas and wait until they are ready; the models, of which this process needs
    tokenizers and labels."""
    # first: its errors are clearer than a replica's. This process computes nothing and needs no GPU
    engine = "torch" if options.device.startswith("cuda") else options.engine
    models = load_models(replace(options, device="cpu", engine=engine))
    scaling: dict[str, Any] = {"num_replicas": cluster.replicas}
    if cluster.max_replicas is not None:
        scaling = {
            "autoscaling_config": {
                "min_replicas": cluster.replicas,
                "max_replicas": cluster.max_replicas,
                "target_ongoing_requests": _TARGET_ONGOING,
            }
        }
    quiet = {"enable_access_log": False, "log_level": "ERROR"}
    ray.serve.start(proxy_location="Disabled", logging_config=quiet)
    deployment = ray.serve.deployment(Replica).options(
        name=_DEPLOYMENT,
        max_ongoing_requests=_ONGOING,
        ray_actor_options={"num_cpus": cluster.cpus, "num_gpus": cluster.gpus},
        graceful_shutdown_timeout_s=service.limits.timeout_seconds + DRAIN_SLACK_SECONDS,
        logging_config=quiet,
        **scaling,
    )
    handles: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            application = deployment.bind(options, service.limits)
            handles.append(ray.serve.run(application, name=cluster.name, route_prefix=None))
        except BaseException as error:
            failures.append(error)

    # a thread that may be left behind: a cluster without room lets it wait for ever
    running = threading.Thread(target=run, name="litebert-deploy", daemon=True)
    running.start()
    while running.is_alive():
        running.join(0.1)
        if service.is_draining:
            _leave(ray, cluster)
            raise InterruptedRunError("stopped before the replicas were ready")
    if failures:
        _leave(ray, cluster)
        raise LitebertError(
            f"Ray Serve could not start the replicas: {str(failures[0]).splitlines()[0]}; the "
            "models are read at the same paths, by an installed litebert, on every machine of the "
            "cluster"
        ) from failures[0]
    scheduler.connect(ray, handles[0], lambda: _leave(ray, cluster))
    return models


def _leave(ray: Any, cluster: Cluster) -> None:
    """End the application, and a cluster that was started for it."""
    with contextlib.suppress(Exception):  # a cluster that is gone needs no end
        ray.serve.delete(cluster.name)
    if not os.environ.get("RAY_ADDRESS"):
        with contextlib.suppress(Exception):
            ray.serve.shutdown()
    ray.shutdown()
