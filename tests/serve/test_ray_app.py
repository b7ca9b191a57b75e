"""A service whose models compute in replicas: with replicas in this process a job goes to another
one where the first dies, and answers, errors and metrics are those of the plain service. On a real
cluster, under load, a killed replica costs nobody an answer, and SIGTERM drains."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from litebert import cli
from litebert.errors import (
    ConfigError,
    InterruptedRunError,
    LitebertError,
)
from litebert.serve import ray_app
from litebert.serve.access import Access
from litebert.serve.app import Limits, Service
from litebert.serve.metrics import Metrics
from litebert.serve.models import LoadOptions, Models, Source
from litebert.serve.ray_app import (
    ATTEMPTS,
    Cluster,
    RayScheduler,
    Replica,
    application_name,
    deploy,
    open_service,
)
from tests.helpers.serving import HANGS, Running, serving, wait_for

TEXTS = ["the baker sings", "a thief sleeps in the old house"]


class DiedError(Exception):
    pass


class UnavailableError(Exception):
    pass


RAY = SimpleNamespace(
    exceptions=SimpleNamespace(
        RayActorError=DiedError, WorkerCrashedError=DiedError, NodeDiedError=DiedError
    ),
    serve=SimpleNamespace(exceptions=SimpleNamespace(ReplicaUnavailableError=UnavailableError)),
)


class Response:
    """What a handle's call returns: awaited, or cancelled."""

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine
        self.is_cancelled = False

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def cancel(self) -> None:
        self.is_cancelled = True


class Handle:
    """A deployment's handle to one replica in this process; the next calls fail as told."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.failures: list[Exception] = []
        self.calls: list[Response] = []
        self.is_open = threading.Event()
        self.is_open.set()
        self.run = self

    def remote(self, *arguments: Any) -> Response:
        self.calls.append(Response(self._run(*arguments)))
        return self.calls[-1]

    async def _run(self, *arguments: Any) -> Any:
        while not self.is_open.is_set():
            await asyncio.sleep(0.005)
        if self.failures:
            raise self.failures.pop(0)
        return await self._replica.run(*arguments)


@pytest.fixture(scope="module")
def handle(folder: Path) -> Iterator[Handle]:
    source = Source(name="tiny", folder=str(folder))
    replica = Replica(LoadOptions(sources=(source,), device="cpu", threads=1), Limits())
    yield Handle(replica)
    replica.__del__()


@pytest.fixture
def over_replicas(handle: Handle, models: Models) -> Iterator[Running]:
    metrics = Metrics()
    scheduler = RayScheduler(metrics, queue_tokens=100)
    scheduler.connect(RAY, handle, lambda: None)
    access = Access(host="127.0.0.1")
    limits = Limits(queue_tokens=100)
    service = Service(access=access, limits=limits, metrics=metrics, scheduler=scheduler)
    handle.failures.clear()
    handle.calls.clear()
    handle.is_open.set()
    with serving(models, service=service) as running:
        yield running
        handle.is_open.set()


def test_answers_are_those_of_the_plain_service(over_replicas: Running, running: Running) -> None:
    for path, body in (
        ("/v1/classify", {"texts": TEXTS}),
        ("/v1/embeddings", {"input": TEXTS}),
        ("/v1/answer", {"items": [{"question": "who sings", "context": TEXTS[0]}]}),
        ("/v1/fill", {"texts": ["no such thing [MASK]"], "top": 2}),
        ("/v1/classify", {"texts": []}),
    ):
        ours, plain = over_replicas.ask(path, body), running.ask(path, body)
        assert (ours.status, ours.json) == (plain.status, plain.json)
        assert ours.headers.keys() == plain.headers.keys()
    text = over_replicas.ask("/metrics").body.decode()
    assert 'litebert_texts_total{model="tiny",verb="classify"} 2' in text
    assert 'litebert_requests_total{path="/v1/classify",status="200"} 1' in text


@pytest.mark.parametrize("error", [DiedError(), UnavailableError()], ids=lambda x: type(x).__name__)
def test_a_job_goes_to_another_replica_where_one_dies(
    over_replicas: Running, handle: Handle, error: Exception
) -> None:
    handle.failures = [error] * (ATTEMPTS - 1)
    assert over_replicas.ask("/v1/classify", {"texts": TEXTS}).status == 200
    assert len(handle.calls) == ATTEMPTS
    handle.failures = [error] * ATTEMPTS
    lost = over_replicas.ask("/v1/classify", {"texts": TEXTS})
    assert (lost.status, lost.headers["retry-after"]) == (503, "2")
    assert "the replicas that computed the texts were lost; try again" in lost.message


def test_a_defect_in_a_replica_is_an_error_without_its_text(
    over_replicas: Running, handle: Handle, capfd: pytest.CaptureFixture[str]
) -> None:
    models = handle._replica._service.models
    handle._replica._service.models = Models([])  # computing raises KeyError
    try:
        failed = over_replicas.ask("/v1/classify", {"texts": TEXTS})
    finally:
        handle._replica._service.models = models
    assert (failed.status, failed.message) == (500, "the service failed; its log has the place")
    logged = capfd.readouterr().err
    assert "litebert serve: KeyError at models.py" in logged
    assert TEXTS[0] not in logged


def test_too_much_under_way_and_late_jobs_are_refused(
    over_replicas: Running, handle: Handle
) -> None:
    handle.is_open.clear()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(over_replicas.ask, "/v1/classify", {"texts": TEXTS * 10})
        wait_for(lambda: len(handle.calls) == 1)
        full = over_replicas.ask("/v1/classify", {"texts": TEXTS})
        assert (full.status, full.json["error"]["code"]) == (429, "overloaded")
        handle.is_open.set()
        assert first.result().status == 200
    handle.is_open.clear()
    late = over_replicas.ask(
        "/v1/classify", {"texts": TEXTS}, headers={"X-Request-Timeout": "0.05"}
    )
    assert late.status == 504
    wait_for(lambda: handle.calls[-1].is_cancelled)
    wait_for(lambda: over_replicas.service.scheduler.sizes == (0, 0))


class FakeRay:
    """Keeps what is asked of Ray; `run` is what serve.run does."""

    def __init__(self, run: Any = lambda *args, **options: "a handle") -> None:
        self.asked: dict[str, Any] = {}
        self.calls: list[str] = []
        self.exceptions = SimpleNamespace(RayError=DiedError, **vars(RAY.exceptions))
        self.serve = SimpleNamespace(
            run=run,
            start=lambda **options: self.asked.update(options),
            delete=lambda name: self.calls.append(f"delete {name}"),
            shutdown=lambda: self.calls.append("serve.shutdown"),
            deployment=lambda kind: self,
            exceptions=RAY.serve.exceptions,
        )

    def options(self, **options: Any) -> "FakeRay":
        self.asked.update(options)
        return self

    def bind(self, *arguments: Any) -> "FakeRay":
        return self

    def init(self, **options: Any) -> None:
        raise ConnectionError("nobody listens\nand more")

    def shutdown(self) -> None:
        self.calls.append("shutdown")


def deployed(
    ray: FakeRay,
    folder: Path,
    cluster: Cluster,
    *,
    is_draining: bool = False,
    device: str = "cpu",
) -> Models:
    source = Source(name="tiny", folder=str(folder))
    scheduler = RayScheduler(Metrics(), queue_tokens=100)
    service = Service(access=Access(host="127.0.0.1"), scheduler=scheduler)
    service.is_draining = is_draining
    options = LoadOptions(sources=(source,), device=device, threads=1)
    try:
        return deploy(ray, cluster, options, service, scheduler)
    finally:
        service.close()


def test_what_is_asked_of_ray(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray = FakeRay()
    models = deployed(ray, folder, Cluster(replicas=2, max_replicas=5, cpus=3, gpus=1, name="x"))
    assert list(models.served) == ["tiny"]
    assert ray.asked["proxy_location"] == "Disabled"
    assert ray.asked["ray_actor_options"] == {"num_cpus": 3, "num_gpus": 1}
    scaling = ray.asked["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"]) == (2, 5)
    assert ray.calls == ["delete x", "serve.shutdown", "shutdown"]
    monkeypatch.setenv("RAY_ADDRESS", "first:6379")  # a cluster of others goes on
    ray = FakeRay()
    deployed(ray, folder, Cluster(replicas=2, name="x"))
    assert ray.asked["num_replicas"] == 2
    assert ray.calls == ["delete x", "shutdown"]


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "auto"])
def test_the_listening_process_needs_no_gpu(
    folder: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: device == "auto")
    models = deployed(FakeRay(), folder, Cluster(gpus=1), device=device)
    engine = models.served["tiny"].predictor.engine
    assert (engine.name, engine.is_gpu) == ("torch", False)


@pytest.mark.parametrize(
    ("gpus", "options", "device", "expected"),
    [
        (2.0, {}, "auto", 1),
        (1.0, {}, "cpu", 0),  # another replica would wait for ever
        (0.0, {}, "cpu", 0),
        (2.0, {"engine": "onnx"}, "cpu", 0),
        (2.0, {"device": "cpu"}, "cpu", 0),
    ],
)
def test_replicas_have_gpus_where_the_cluster_has_enough(
    folder: Path,
    gpus: float,
    options: dict[str, Any],
    device: str,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray hides GPUs from a replica that asks for none."""
    ray = FakeRay()
    ray.cluster_resources = lambda: {"CPU": 8.0} | ({"GPU": gpus} if gpus else {})
    bound: list[LoadOptions] = []
    ray.bind = lambda options, limits: bound.append(options)
    monkeypatch.setattr(ray_app, "start_ray", lambda **resources: ray)
    loading = LoadOptions(sources=(Source(name="tiny", folder=str(folder)),), **options)
    service, load = open_service(
        Cluster(max_replicas=2), loading, access=Access(host="127.0.0.1"), limits=Limits()
    )
    monkeypatch.setattr(ray_app, "load_models", lambda options: None)
    try:
        load()
    finally:
        service.close()
    assert ray.asked["ray_actor_options"]["num_gpus"] == expected
    assert bound[0].device == device


def test_replicas_that_do_not_start_are_explained(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("Deploying application failed\na long trace")

    failing = FakeRay(fail)
    with pytest.raises(
        LitebertError, match=r"could not start the replicas: Deploying application failed; the mod"
    ):
        deployed(failing, folder, Cluster())
    assert "shutdown" in failing.calls
    waiting = threading.Event()
    stuck = FakeRay(lambda *arguments, **options: waiting.wait())
    with pytest.raises(InterruptedRunError, match="stopped before the replicas were ready"):
        deployed(stuck, folder, Cluster(), is_draining=True)
    waiting.set()


def test_replicas_have_bounds() -> None:
    assert Cluster(replicas=2, max_replicas=4).most == 4
    with pytest.raises(ConfigError, match="replicas is at least 1; got 0"):
        Cluster(replicas=0)
    with pytest.raises(ConfigError, match="at least the number of replicas, 3; got 2"):
        Cluster(replicas=3, max_replicas=2)
    assert re.fullmatch(r"litebert-[a-zA-Z0-9-]+-8080", application_name(8080))


def test_the_command_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    monkeypatch.setenv("RAY_ADDRESS", "first:6379")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    assert cli.run(["serve", "--port", "0", "--runner", "ray"]) == 1
    shown = capsys.readouterr().err
    assert "--runner ray needs the package 'ray[serve]'" in shown
    assert "pip install 'litebert[ray]'" in shown
    assert cli.run(["serve", "--replicas", "2"]) == 2
    assert "add --runner ray" in capsys.readouterr().err


# ---- a real cluster


def replica_pids(root: int) -> list[int]:
    """Processes of replicas below a process; Ray names them so."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    family, grown = {str(root)}, True
    while grown:
        children = {pid for pid, parent, _ in rows if parent in family}
        grown = not children <= family
        family |= children
    return [int(pid) for pid, _, args in rows if pid in family and "ray::ServeReplica" in args]


def ask(port: int, path: str, body: Any = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS)
    try:
        connection.request("GET" if body is None else "POST", path, json.dumps(body).encode())
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


class Load:
    """Clients that ask as fast as they are answered, until they are told to stop."""

    def __init__(self, port: int, clients: int) -> None:
        self._port = port
        self.statuses: list[int] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stopping.is_set():
            self.statuses.append(ask(self._port, "/v1/classify", {"texts": TEXTS})[0])

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(HANGS)


@pytest.mark.system
def test_a_killed_replica_costs_nobody_an_answer_and_sigterm_drains(folder: Path) -> None:
    pytest.importorskip("ray.serve")
    command = ["serve", "--model", f"tiny={folder}", "--port", "0", "--runner", "ray"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("RAY_ADDRESS", None)
    command += ["--replicas", "2", "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "litebert.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    with process, contextlib.ExitStack() as stack:
        stack.callback(process.terminate)
        assert process.stdout is not None
        assert process.stderr is not None
        address = re.search(r":(\d+) loads tiny", process.stderr.readline())
        assert address is not None
        assert any(line.startswith("ready") for line in process.stdout)
        before = replica_pids(process.pid)
        assert len(before) == 2
        port = int(address[1])
        load = Load(port, clients=8)
        wait_for(lambda: len(load.statuses) > 50)
        os.kill(before[0], signal.SIGKILL)
        answered = len(load.statuses)
        wait_for(lambda: len(load.statuses) > answered + 200)
        wait_for(lambda: len(set(replica_pids(process.pid)) - {before[0]}) == 2)
        load.stop()
        assert set(load.statuses) == {200}
        with ThreadPoolExecutor() as pool:
            body = {"texts": TEXTS * 1000}
            large = [pool.submit(ask, port, "/v1/classify", body) for _ in range(4)]

            def are_accepted() -> bool:
                queue = re.search(rb"\nte_queue_size (\d+)", ask(port, "/metrics")[1])
                assert queue is not None
                return sum(each.done() for each in large) + int(queue[1]) >= 4

            wait_for(are_accepted)
            process.send_signal(signal.SIGTERM)
            assert [each.result()[0] for each in large] == [200] * 4
        assert process.wait(HANGS) == 0
        assert "all accepted requests were answered" in process.stderr.read()
        wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in before))
