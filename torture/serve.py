"""Soak litebert serve: minutes at twice its capacity, slow connections, and SIGTERM at the end.

    python -m torture.serve --minutes 10 --out torture.json

A small model with random weights, over loopback. The capacity is what 16 clients get that wait for
their answers; then requests come at twice that rate, of one text or of forty, with a deadline of
two seconds. Promised is:

- only 200, 429, 503 and 504, and every request has an answer;
- memory: the median of the last fifth at most 5 % above that of the second fifth;
- with 200 connections that send a byte a second, /health answers within 100 ms;
- SIGTERM: everything that was accepted is answered with 200 or 504, a body that is half sent with
  503; exit code 0, and no traceback.
"""

import argparse
import asyncio
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.common.load import ROOT, Loader
from bench.common.results import add_out, begin, publish
from bench.cpu.serve_load import made_texts, save, sizes_of

ALLOWED = {"200", "429", "503", "504"}
CLIENTS = 16
GROWTH = 0.05
HEALTH_SECONDS = 0.1
SLOW = 200
TIMEOUT = 2.0
QUEUE_TOKENS = 16_384
IN_FLIGHT = 64
Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--shape", default="litebert-mini", help="preset whose sizes are taken")
    parser.add_argument("--batching", choices=("auto", "depth", "static"), default="auto")
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    with tempfile.TemporaryDirectory(prefix="litebert-soak-") as folder, Loader() as loader:
        model = save(Path(folder), sizes_of(options.shape), "none")
        service = Service(model, options.batching)
        try:
            figures = campaign(service, loader, 60 * options.minutes)
        finally:
            service.process.kill()
            service.process.communicate()
        figures["tracebacks"] = service.tracebacks
    figures["broken"] = broken(figures)
    publish(figures, options.out)
    sys.exit(bool(figures["broken"]))


class Service:
    """The command in a process of its own."""

    def __init__(self, model: Path, batching: str) -> None:
        command = [sys.executable, "-m", "litebert.cli", "serve", "--model", f"soak={model}"]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        flags = ["--timeout", str(TIMEOUT), "--queue-tokens", str(QUEUE_TOKENS), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, *flags, "--device", "cpu", "--batching", batching],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = next((line for line in self.process.stdout if "curl" in line), None)
        if line is None:
            raise SystemExit("the service did not start")
        self.port = int(line.split("http://127.0.0.1:")[1].split("/")[0])

    @property
    def mib(self) -> float:
        """Resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match is not None
        return int(match[1]) / 1024

    @property
    def tracebacks(self) -> int:
        """On stderr."""
        self._log.seek(0)
        return self._log.read().count("Traceback")

    def get(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200
        text = response.read().decode()
        connection.close()
        return text

    def health_seconds(self) -> float:
        began = time.perf_counter()
        self.get("/health")
        return time.perf_counter() - began

    def accepted(self) -> tuple[int, int]:
        """Requests with results, or late, and those that wait for theirs."""
        text = self.get("/metrics")
        done = re.findall(r'\{path="/v1/classify",status="(?:200|504)"\} (\d+)', text)
        (waiting,) = re.findall(r"\nte_queue_size (\d+)", text)
        return sum(map(int, done)), int(waiting)


def campaign(service: Service, loader: Loader, seconds: float) -> Figures:
    texts = made_texts(400, 8, 128)
    bodies = [
        json.dumps({"texts": texts[:40] if number % 20 == 0 else [text]})
        for number, text in enumerate(texts)
    ]
    asked: Any = (service.port, "/v1/classify", bodies)
    loader.closed(*asked, clients=2, seconds=2.0)
    capacity = loader.closed(*asked, clients=CLIENTS, seconds=min(10.0, seconds))
    rate = 2 * max(capacity["answered_per_second"], 1.0)
    statuses, memory, health = Counter[str](), [], []
    end, number = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        # a minute and more of patience: the service itself ends requests after its timeout
        part = loader.open(
            *asked, rate=rate, seconds=min(5.0, max(left, 0.5)), seed=number, patience=90.0
        )
        statuses.update({name: count for name, count in part["statuses"].items() if count})
        memory.append(service.mib)
        health.append(service.health_seconds())
        number += 1
    slow = asyncio.run(slow_connections(service))
    return {
        "capacity": capacity["answered_per_second"],
        "offered": rate,
        "seconds": seconds,
        "statuses": dict(statuses),
        "memory_mib": memory,
        "growth": growth(memory),
        "health_seconds_in_the_soak": max(health),
        "health_seconds_with_slow_connections": slow,
        **asyncio.run(drain(service, bodies)),
    }


def growth(memory: list[float]) -> float:
    """Of the last fifth against the second: the first one is warm-up."""
    fifth = max(len(memory) // 5, 1)
    before, after = memory[fifth : 2 * fifth] or memory[:1], memory[-fifth:]
    return statistics.median(after) / statistics.median(before) - 1


async def slow_connections(service: Service) -> float:
    """The longest of 50 answers of /health beside connections that send a byte a second."""
    head = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    writers = []
    for _ in range(SLOW):
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(head)
        writers.append(writer)

    async def drip() -> None:
        while True:
            for writer in writers:
                writer.write(b" ")
            await asyncio.sleep(1.0)

    dripping = asyncio.ensure_future(drip())
    await asyncio.sleep(0.1)
    longest = [await asyncio.to_thread(service.health_seconds) for _ in range(50)]
    dripping.cancel()
    for writer in writers:
        writer.close()
    return max(longest)


async def drain(service: Service, bodies: list[str]) -> Figures:
    """SIGTERM while requests are computed: how many were accepted, what all were answered, and the
    exit code."""
    before, _ = await asyncio.to_thread(service.accepted)
    streams = []
    for number in range(IN_FLIGHT + 1):
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        body = bodies[number % len(bodies)].encode()
        head = f"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        sent = body if number < IN_FLIGHT else body[: len(body) // 2]
        writer.write(f"{head}\r\n\r\n".encode() + sent)
        streams.append((reader, writer))
    done = waiting = 0
    end = time.monotonic() + 10
    while not waiting and time.monotonic() < end:
        done, waiting = await asyncio.to_thread(service.accepted)
    service.process.send_signal(signal.SIGTERM)
    statuses: Counter[str] = Counter()
    for reader, writer in streams:
        answer = await reader.read()  # to its end: the service closes while it drains
        head, _, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        is_whole = length is not None and len(body) == int(length[1])
        statuses[head.split(b" ", 2)[1].decode() if is_whole else "cut"] += 1
        writer.close()
    code = await asyncio.to_thread(service.process.wait)
    return {
        "accepted_at_sigterm": done - before + waiting if waiting else 0,
        "answers_after_sigterm": dict(statuses),
        "exit_code": code,
    }


def broken(figures: Figures) -> list[str]:
    """The promises that did not hold."""
    answers = figures["answers_after_sigterm"]
    checks = {
        "statuses": set(figures["statuses"]) <= ALLOWED and "200" in figures["statuses"],
        "memory": figures["growth"] <= GROWTH,
        "slow connections": figures["health_seconds_with_slow_connections"] <= HEALTH_SECONDS,
        "SIGTERM": set(answers) <= ALLOWED
        and 0 < figures["accepted_at_sigterm"] <= answers.get("200", 0) + answers.get("504", 0),
        "exit code": figures["exit_code"] == 0,
        "tracebacks": figures["tracebacks"] == 0,
    }
    return [name for name, holds in checks.items() if not holds]


if __name__ == "__main__":
    main()
