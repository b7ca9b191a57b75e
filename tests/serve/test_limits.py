"""Who may ask and how much: access, sizes, deadlines, a full queue, drain; and never a 500."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from litebert import cli
from litebert.errors import ConfigError, LitebertError
from litebert.infer.predictor import Predictor
from litebert.serve.access import Access
from litebert.serve.app import Limits, Service, count_values
from litebert.serve.models import Models, ServedModel, sources
from litebert.serve.server import Server, bind
from tests.helpers.serving import HANGS, Answer, Running, serving, wait_for

TEXT = "the baker sings"
SECRET = "wherefore art thou"
ONE = {"texts": [TEXT]}
KEY = "0123456789abcdef"
BEARER = {"Authorization": f"Bearer {KEY}"}


class Gate(Models):
    """Models that compute once the gate opens."""

    def __init__(self, served: Sequence[ServedModel]) -> None:
        super().__init__(served, batching="static")
        self.opened = threading.Event()
        self.calls: list[int] = []

    def compute(self, key: Any, items: Sequence[Any]) -> list[Any]:
        self.calls.append(len(items))
        assert self.opened.wait(HANGS)
        return super().compute(key, items)


@pytest.fixture
def gate(predictor: Predictor) -> Iterator[Gate]:
    models = Gate([ServedModel("tiny", predictor)])
    yield models
    models.opened.set()


# ---- access


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/health", {}, 200),
        ("/ready", {}, 200),
        ("/v1/models", {}, 401),
        ("/info", {}, 401),
        ("/openapi.json", {}, 401),
        ("/v1/models", BEARER, 200),
        ("/info", BEARER, 200),
        ("/v1/models", {"Authorization": f"bearer {KEY}"}, 200),
        ("/v1/models", {"Authorization": KEY}, 401),
        ("/v1/models", {"Authorization": f"Basic {KEY}"}, 401),
        ("/v1/models", {"Authorization": f"Bearer {KEY}x"}, 401),
        ("/v1/models", {"Authorization": f"Bearer {KEY[:-1]}"}, 401),
        ("/v1/models", {"Authorization": "Bearer "}, 401),
        ("/v1/models", {"Authorization": "Bearer \xe9"}, 401),
        ("/v1/models", {**BEARER, "Host": "localhost"}, 200),
        ("/v1/models", {**BEARER, "Host": "localhost:99"}, 200),
        ("/v1/models", {**BEARER, "Host": "LOCALHOST"}, 200),
        ("/v1/models", {**BEARER, "Host": "127.0.0.1"}, 200),
        ("/v1/models", {**BEARER, "Host": "[::1]:80"}, 200),
        ("/v1/models", {**BEARER, "Host": "named.example"}, 200),
        ("/v1/models", {**BEARER, "Host": "evil.example"}, 400),
        ("/health", {"Host": "evil.example"}, 400),
        ("/v1/models", {**BEARER, "Host": "localhost.evil.example"}, 400),
        ("/v1/models", {**BEARER, "Host": "localhost@evil.example"}, 400),
        ("/v1/models", {**BEARER, "Host": ""}, 400),
        ("/v1/models", {**BEARER, "Host": "localhost:port"}, 400),
        ("/v1/models", {**BEARER, "Host": "localhost", "Origin": "http://localhost"}, 200),
        ("/v1/models", {**BEARER, "Origin": "http://evil.example"}, 403),
        ("/v1/models", {**BEARER, "Origin": "null"}, 403),
        ("/v1/models", {"Origin": "http://["}, 403),
        ("/v1/models", {**BEARER, "Sec-Fetch-Site": "cross-site"}, 403),
        ("/v1/models", {**BEARER, "Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_access(path: str, headers: dict[str, str], status: int, guarded: Running) -> None:
    answer = guarded.ask(path, headers=headers)
    assert answer.status == status, answer.body
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert not any(name.startswith("access-control-") for name in answer.headers)
    if status != 200:
        assert answer.json["error"].keys() == {"message", "type", "param", "code"}
        assert KEY not in answer.message


@pytest.fixture(scope="module")
def guarded(predictor: Predictor) -> Iterator[Running]:
    access = Access(host="127.0.0.1", key=KEY, allowed_hosts=["named.example"])
    with serving(Models([ServedModel("tiny", predictor)]), access=access) as service:
        yield service


def test_other_machines_need_a_key_or_insecure(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "192.168.1.2", "::", "example.org"):
        with pytest.raises(ConfigError, match="give a key with --key-file, or allow everybody"):
            Access(host=host)
        Access(host=host, insecure=True)
        Access(host=host, key=KEY)
    for host in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        Access(host=host)


@pytest.mark.parametrize("key", ["", "short", "two words in here", "ümlautümlautümlaut"])
def test_a_weak_key_is_refused(key: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "key").write_text(key, encoding="utf-8")
    assert cli.run(["serve", "--key-file", str(tmp_path / "key")]) == 2
    assert "one line of at least 16 ASCII characters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--host", "0.0.0.0"], "other machines can reach 0.0.0.0"),
        (["--port", "70000"], "port is a number from 0 to 65535"),
        (["--timeout", "0"], "timeout is a number of seconds"),
        (["--queue-tokens", "0"], "batch_tokens and queue_tokens are at least 1"),
        (["--model", "a/x", "--model", "b/x"], "two models are called 'x'"),
        (["--model", "="], "NAME=FOLDER; got '='"),
        (["--host", "no.such.invalid", "--insecure"], "cannot listen at no.such.invalid"),
    ],
)
def test_wrong_flags_are_refused_at_once(args: list[str], message: str, capsys: Any) -> None:
    assert cli.run(["serve", *args]) == 2
    assert message in capsys.readouterr().err


def test_the_page_is_open_and_only_its_files_are_served(guarded: Running) -> None:
    page = guarded.ask("/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    paths = ("/page/../app.py", "/page/%2e%2e%2fapp.py", "/page/app.py", "/page/", "/page/a/b.js")
    for path in paths:
        assert guarded.ask(path).status == 404, path


def test_request_ids_come_back(running: Running) -> None:
    assert running.ask("/health", headers={"X-Request-Id": "a-1"}).headers["x-request-id"] == "a-1"
    made = [running.ask("/health").headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    forged = running.ask("/health", headers={"X-Request-Id": "a b"}).headers["x-request-id"]
    assert forged != "a b"


# ---- limits


def test_a_large_body_is_refused(running: Running) -> None:
    body = json.dumps({"texts": ["x" * (2 * 2**20)]}).encode()
    answer = running.ask("/v1/classify", body)
    assert answer.status == 413
    assert "the body is larger than 2,097,152 bytes" in answer.message
    chunks = b"%x\r\n%s\r\n" % (len(body), body)
    with socket.create_connection(("127.0.0.1", running.port), timeout=HANGS) as client:
        head = (
            b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        client.sendall(head + chunks + b"0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")
    with socket.create_connection(("127.0.0.1", running.port), timeout=HANGS) as client:
        client.sendall(
            b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
        )
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_the_deadline_ends_a_request(gate: Gate) -> None:
    with serving(gate, limits=Limits(timeout_seconds=60)) as running:
        answer = running.ask("/v1/classify", ONE, headers={"X-Request-Timeout": "0.05"})
        assert answer.status == 504
        assert "the deadline passed" in answer.message
        for sent in ("0", "nan", "soon", "-1"):
            refused = running.ask("/v1/classify", ONE, headers={"X-Request-Timeout": sent})
            assert refused.status == 400
        gate.opened.set()
        assert running.ask("/v1/classify", ONE).status == 200
    with serving(gate, limits=Limits(timeout_seconds=0.05)) as running:
        gate.opened.clear()
        assert running.ask("/v1/classify", ONE).status == 504
        gate.opened.set()


def test_a_full_queue_is_refused_with_a_time_to_retry(gate: Gate) -> None:
    with serving(gate, limits=Limits(queue_tokens=4)) as running, _asking(running, ONE) as first:
        wait_for(lambda: running.service.scheduler.is_full)
        refused = running.ask("/v1/classify", ONE)
        assert refused.status == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json["error"]["type"] == "rate_limit_error"
        assert running.ask("/health").status == 200
        gate.opened.set()
        assert first().status == 200
        assert running.ask("/v1/classify", ONE).status == 200


def test_not_ready_is_503() -> None:
    with serving(None) as running:
        assert running.ask("/health").status == 200
        for path, body in (("/ready", None), ("/v1/models", None), ("/v1/classify", ONE)):
            answer = running.ask(path, body)
            assert answer.status == 503
            assert "the models are being loaded" in answer.message
            assert "retry-after" in answer.headers


def test_a_client_that_leaves_frees_its_place(gate: Gate) -> None:
    with serving(gate, limits=Limits(batch_tokens=8)) as running:
        with _asking(running, ONE) as first:
            wait_for(lambda: len(gate.calls) == 1)  # this one computes, the next waits
            body = json.dumps({"texts": [TEXT] * 50}).encode()
            with socket.create_connection(("127.0.0.1", running.port), timeout=HANGS) as client:
                client.sendall(
                    b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                    + str(len(body)).encode()
                    + b"\r\n\r\n"
                    + body
                )
                wait_for(lambda: running.service.scheduler.sizes.jobs == 2)
            wait_for(lambda: running.service.accepted == 1)
            gate.opened.set()
            assert first().status == 200
        wait_for(lambda: running.service.scheduler.sizes == (0, 0))
        assert gate.calls == [1]  # nothing was computed for nobody


def test_draining_answers_what_was_accepted_and_nothing_new(gate: Gate) -> None:
    with serving(gate) as running, contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(_asking(running, ONE)) for _ in range(8)]
        wait_for(lambda: running.service.accepted == 8)
        running.server.stop()
        refused = running.ask("/v1/classify", ONE)
        assert refused.status == 503
        assert "the service is stopping" in refused.message
        assert running.ask("/ready").status == 503
        assert running.ask("/health").status == 200
        gate.opened.set()
        assert [first().status for first in waiting] == [200] * 8


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /health HTTP/1.1\r\nHost: loc"])
def test_a_connection_without_a_request_is_closed(
    sent: bytes, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.serve.server.HEAD_SECONDS", 1)
    with (
        serving(models) as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=HANGS) as client,
    ):
        began = time.monotonic()
        for byte in sent:
            client.sendall(bytes([byte]))
        assert client.recv(100) == b""
        assert time.monotonic() - began > 0.9


def test_a_request_may_take_longer_than_its_head(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.serve.server.HEAD_SECONDS", 1)
    with serving(gate) as running, _asking(running, ONE) as first:
        wait_for(lambda: len(gate.calls) == 1)
        time.sleep(1.2)
        gate.opened.set()
        assert first().status == 200


@contextlib.contextmanager
def half_sent(port: int) -> Iterator[socket.socket]:
    """A connection with a request of which half of the body is sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANGS) as client:
        head = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
        client.sendall(head + b'{"texts": [')
        yield client


def test_a_body_that_is_still_arriving_is_refused_by_a_service_that_stops(
    gate: Gate, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(gate) as running, _asking(running, ONE) as first, half_sent(running.port) as half:
        wait_for(lambda: len(gate.calls) == len(running.service.reading) == 1)
        running.server.stop()
        answer = half.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5" in answer
        assert not gate.opened.is_set()
        gate.opened.set()
        assert first().status == 200
    assert not caplog.text + capfd.readouterr().err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # exit code 75
def test_what_is_cut_off_is_503(
    gate: Gate, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(gate) as running, _asking(running, ONE) as first:
        wait_for(lambda: len(gate.calls) == 1)
        running.server.handle_exit(signal.SIGTERM, None)
        running.server.handle_exit(signal.SIGTERM, None)
        assert first().status == 503
        gate.opened.set()
    assert not caplog.text + capfd.readouterr().err


def test_slow_connections_do_not_block_health(running: Running) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(100):
            client = stack.enter_context(
                socket.create_connection(("127.0.0.1", running.port), timeout=HANGS)
            )
            head = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
            client.sendall(head if number % 2 else head + b"\r\n{")
        assert running.ask("/health").status == 200
        assert running.ask("/v1/classify", ONE).status == 200


def test_answers_are_sent_at_once(running: Running) -> None:
    """Without TCP_NODELAY a body waits 40 ms for the acknowledgment of its head."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=HANGS) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
        (connection,) = (
            each.transport.get_extra_info("socket")  # type: ignore[union-attr]
            for each in running.server.server_state.connections
            if each.client == client.getsockname()  # type: ignore[union-attr]
        )
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@contextlib.contextmanager
def _asking(running: Running, body: Any) -> Iterator[Callable[[], Answer]]:
    """A request in a thread; its answer when called."""
    answers: list[Answer] = []
    thread = threading.Thread(
        target=lambda: answers.append(running.ask("/v1/classify", body)), daemon=True
    )
    thread.start()

    def answer() -> Answer:
        thread.join(HANGS)
        return answers[0]

    try:
        yield answer
    finally:
        pass


# ---- bad bodies


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("classify", b"", 400, "the body is not valid JSON"),
        ("classify", b"{", 400, "the body is not valid JSON"),
        ("classify", b"\xff{}", 400, "the body is not UTF-8"),
        ("classify", b"[1]", 400, "the body is a JSON object; got a list"),
        ("classify", b"[" * 100_000, 400, "the body is not valid JSON"),
        ("classify", b'{"texts": NaN}', 400, "NaN is no number of JSON"),
        ("classify", {}, 400, "the field 'texts' is missing"),
        ("classify", {"text": "x"}, 400, "there is no field 'text'; known: model, texts"),
        ("classify", {"texts": "x"}, 400, "texts is a list of texts; got a text"),
        ("classify", {"texts": []}, 400, "texts is empty"),
        ("classify", {"texts": [1]}, 400, r"texts[0] is a text; got a number"),
        ("classify", {"texts": ["x", " "]}, 422, "texts[1] is empty"),
        ("classify", b'{"texts": ["\\ud800"]}', 400, "half of a surrogate pair (character 1)"),
        ("classify", {"texts": ["x"] * 2049}, 413, "at most 2,048"),
        ("classify", {"texts": ["x"], "truncate": 1}, 400, "truncate is true or false"),
        ("classify", {"texts": ["x"], "model": 1}, 400, "model is the name of a model"),
        ("classify", b'{"texts": ["x"], "model": "\\ud800"}', 404, "there is no model '\\ud800'"),
        ("fill", {"texts": ["x"]}, 422, "there is no [MASK] in the text 'x'"),
        ("fill", {"texts": ["[MASK]"], "top": 0}, 400, "top is a whole number from 1 to 100"),
        ("fill", {"texts": ["[MASK]"], "top": True}, 400, "top is a whole number from 1 to 100"),
        ("fill", {"texts": ["[MASK]"], "top": [1]}, 400, "from 1 to 100; got a list"),
        (
            "fill",
            {"texts": ["[MASK]" * 100] * 21, "top": 100},
            413,
            "texts has 2,100 masks with 100 guesses each, one request has at most 204,800 guesses",
        ),
        ("pair", {"pairs": [["x"]]}, 400, "pairs[0] is a list of two texts"),
        ("regress", {"pairs": [["x", "y"]], "texts": ["x"]}, 400, "send either texts or pairs"),
        ("choose", {"items": [1]}, 400, "items[0] is an object with context, question, options"),
        ("choose", {"items": [{"context": "x"}]}, 400, "items[0] has no 'question'"),
        (
            "choose",
            {"items": [{"context": "x", "question": "y", "options": ["z"]}]},
            422,
            "items[0]: choose needs two or more options; got 1",
        ),
        (
            "choose",
            {"items": [{"context": TEXT * 3, "question": "x", "options": ["a"] * 2048}]},
            413,
            "tokens, one item at most 32,768; send fewer options",
        ),
        ("answer", {"items": [{"question": "x", "context": ""}]}, 422, "context is empty"),
        (
            "answer",
            {"items": [{"question": "x", "context": "the baker " * 9000}]},
            413,
            "tokens, one item at most 32,768; send it in parts",
        ),
        ("tag", {"texts": [[]]}, 422, "there is no word to tag"),
        ("embeddings", {}, 400, "the field 'input' is missing"),
        ("embeddings", {"input": [3]}, 400, "holds token ids"),
        ("embeddings", {"input": "x", "encoding_format": "int"}, 400, "one of float, base64"),
    ],
)
def test_bad_bodies_are_refused_in_one_sentence(
    path: str, body: Any, status: int, message: str, running: Running
) -> None:
    answer = running.ask(f"/v1/{path}", body)
    assert (answer.status, message in answer.message) == (status, True), answer.body


def test_values_are_counted_until_there_are_many() -> None:
    assert count_values({"a": [1, 2, 3], "b": {"c": "x", "d": []}}, 100) == 4
    assert count_values([[0.5] * 8] * 3, 100) == 24
    assert count_values([{"token": "x", "probability": 0.5}] * 10**6, 4096) == 4096


def test_no_body_makes_the_service_fail(
    running: Running, capfd: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(0)
    document = running.ask("/openapi.json").json["paths"]
    paths = [path for path, kinds in document.items() if "post" in kinds]
    item = {"question": SECRET, "context": TEXT}
    valid: dict[str, Any] = {
        "texts": [SECRET, "[MASK]"], "pairs": [[SECRET, TEXT]], "input": SECRET,
        "items": [item], "top": 3, "inputs": [SECRET, TEXT], "query": SECRET, "documents": [TEXT],
    }  # fmt: skip
    values: list[Any] = [
        None, True, -1, 3, 1e300, "", SECRET, "[MASK]", "\0", "\ud800", "\u202e", "\U0001f600" * 9,
        [], {}, [SECRET], [["x", TEXT]], [[]], [None], [[["x"]]], ["\0"], ["[MASK]\u202e"],
        [item | {"options": ["a", "b"]}], [item | {"question": ""}],
        [{"question": 1, "context": [], "options": {}}],
    ]  # fmt: skip
    statuses = set()
    for _ in range(250):
        path = draw.choice(paths)
        fields = document[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        names = list(fields["properties"])
        body = {name: valid[name] for name in names if name in valid}
        for _ in range(draw.randint(0, 2)):
            body[draw.choice(names)] = draw.choice(values)
        if draw.random() < 0.5:
            body.pop(draw.choice(list(body)), None)
        data = json.dumps(body).encode()
        if draw.random() < 0.2:
            at = draw.randrange(len(data))
            data = data[:at] + bytes([draw.randrange(256)]) + data[at + draw.randint(0, 2) :]
        answer = running.ask(path, data)
        assert answer.status < 500, (data, answer.body)
        answer.json  # noqa: B018  always JSON
        statuses.add(answer.status)
    assert {200, 400, 422} <= statuses
    logged = capfd.readouterr()
    assert not logged.out + logged.err


def test_a_failure_is_a_500_without_the_text(
    models: Models, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(key: Any, items: Sequence[Any]) -> list[Any]:
        raise ValueError(SECRET)

    models.batching = "static"
    monkeypatch.setattr(models, "compute", fail)
    with serving(models) as running:
        answer = running.ask("/v1/classify", {"texts": [SECRET]}, headers={"X-Request-Id": "a-1"})
        assert answer.status == 500
        assert answer.json["error"]["type"] == "server_error"
    assert SECRET not in answer.message
    logged = capfd.readouterr().err
    assert re.search(r"ValueError at test_limits\.py:\d+, request a-1\n", logged)
    assert SECRET not in logged


def test_one_client_s_error_is_not_another_s(models: Models, gate: Gate) -> None:
    def refuse(key: Any, items: Sequence[Any]) -> list[Any]:
        if any("sleeps" in item.first for item in items):
            raise LitebertError("not this one")
        return Gate.compute(gate, key, items)

    gate.compute = refuse  # type: ignore[method-assign, assignment]
    with serving(gate) as running, contextlib.ExitStack() as stack:
        first = stack.enter_context(_asking(running, ONE))
        wait_for(lambda: len(gate.calls) == 1)
        bodies: list[Any] = [ONE, {"texts": ["he sleeps"]}, ONE]
        others = [stack.enter_context(_asking(running, body)) for body in bodies]
        wait_for(lambda: running.service.scheduler.sizes.jobs == 4)
        gate.opened.set()
        assert first().status == 200
        assert [other().status for other in others] == [200, 422, 200]


# ---- the process


def test_the_service_imports_no_torch() -> None:
    program = "import sys, litebert.serve.server; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done


def test_without_a_model_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litebert.serve.models.embedded_models", lambda: ())
    with pytest.raises(ConfigError, match="no embedded model yet; give a folder with --model"):
        sources(())


@contextlib.contextmanager
def command(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that serves, and the three lines that it prints when it is ready."""
    words = [
        "serve",
        "--model",
        f"tiny={folder}",
        "--port",
        "0",
        "--device",
        "cpu",
        "--threads",
        "1",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "litebert.cli", *words, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        yield process, [process.stdout.readline() for _ in range(3)]
    finally:
        process.kill()
        process.communicate()


def test_the_command_serves_and_exits_with_0_after_sigterm(folder: Path) -> None:
    with command(folder) as (process, lines):
        assert "tiny  fill, embed, classify, pair" in lines[0]
        assert lines[1] == "ready; try:\n"
        curl = lines[2].strip()
        url, _, body = curl.removeprefix("curl ").partition(" -d ")
        port = int(url.split(":")[2].split("/")[0])
        running = Running(None, None, port)  # type: ignore[arg-type]
        answer = running.ask(url.split(str(port))[1], body.strip("'").encode())
        assert answer.status == 200, answer.body
        process.send_signal(signal.SIGTERM)
        _, logged = process.communicate(timeout=HANGS)
        assert process.returncode == 0
        assert "stopped, all accepted requests were answered" in logged


@pytest.mark.parametrize("stops", [False, True])
def test_ready_is_said_only_by_a_service_that_answers(stops: bool, models: Models) -> None:
    said: list[bool] = []
    listener = bind("127.0.0.1", 0)
    server = Server(Service(access=Access(host="127.0.0.1")), lambda: models)

    def announce() -> None:
        with socket.create_connection(listener.getsockname(), timeout=HANGS):
            said.append(True)
        server.stop()

    server.on_ready = announce
    if stops:
        server.stop()
    server.run_at(listener)
    assert said == ([] if stops else [True])


SLOW = """
import time
from litebert import cli
from litebert.serve import models

models.load_models = lambda *arguments: time.sleep(600)
cli.main(["serve", "--port", "0"])
"""


def test_a_second_signal_while_models_load_ends_the_process() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stderr is not None
        assert " loads " in process.stderr.readline()
        end = time.monotonic() + HANGS
        while process.poll() is None and time.monotonic() < end:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        assert process.returncode == 75
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def test_the_printed_request_reads_a_key_file_of_any_name(folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "my key"
    key.write_text("0123456789abcdef\n")
    with command(folder, "--key-file", str(key)) as (_, lines):
        header = re.search(r'-H ("[^"]*")', lines[2])
        assert header is not None
        shown = subprocess.run(
            ["sh", "-c", f"printf %s {header[1]}"], capture_output=True, text=True
        )
        assert shown.stdout == "Authorization: Bearer 0123456789abcdef"
