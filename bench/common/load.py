"""Load over HTTP from a process of its own: orders in, latencies and statuses out, one JSON line
each.

    Loader().open(port, path, bodies, rate=20, seconds=5)     # arrivals do not wait for answers
    Loader().closed(port, path, bodies, clients=8, seconds=5)

Connections are kept alive. A latency counts from the moment a request was due, so that a server
that falls behind cannot slow its clients down and look fast.
"""

import asyncio
import json
import math
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WARM_UP = 0.15
"""Of the time of a run, whose latencies do not count."""
PATIENCE = 2.0
"""Seconds after the last request that answers are waited for, unless the order says otherwise."""
FRESH_SECONDS = 3.0
"""A connection that has been idle for longer is not used again: servers close those."""
MOST_CONNECTIONS = 1000


class Client:
    """Connections to one server."""

    def __init__(self, port: int, path: str, bodies: Sequence[bytes]) -> None:
        self._port = port
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._requests = [
            f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies
        ]
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._free = asyncio.Semaphore(MOST_CONNECTIONS)
        self.latencies: list[tuple[float, float]] = []
        """When each request was due, and seconds until its answer with 200."""
        self.statuses: Counter[str] = Counter()

    async def ask(self, number: int, due: float) -> None:
        async with self._free:
            try:
                status = await self._ask(self._requests[number % len(self._requests)])
            except (OSError, asyncio.IncompleteReadError, ValueError):
                status = 0
        self.statuses[str(status)] += 1
        if status == 200:
            self.latencies.append((due, time.perf_counter() - due))

    async def _ask(self, request: bytes) -> int:
        reader, writer = await self._connection()
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            status = int(head.split(" ", 2)[1])
            length = next(line for line in head.split("\r\n") if line.startswith("content-length"))
            await reader.readexactly(int(length.partition(":")[2]))
        except BaseException:
            writer.close()
            raise
        if "connection: close" in head:
            writer.close()
        else:
            self._idle.append((time.monotonic(), reader, writer))
        return status

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            used, reader, writer = self._idle.pop()
            if time.monotonic() - used < FRESH_SECONDS and not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        for _, _, writer in self._idle:
            writer.close()


async def open_loop(
    client: Client, *, rate: float, seconds: float, seed: int, patience: float = PATIENCE
) -> int:
    """Poisson arrivals at `rate` a second; the number of requests."""
    draw, tasks = random.Random(seed), []
    due = time.perf_counter()
    end = due + seconds
    while (due := due + draw.expovariate(rate)) < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.ensure_future(client.ask(len(tasks), due)))
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=patience)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        client.statuses["none"] += len(late)
    return len(tasks)


async def closed_loop(client: Client, *, clients: int, seconds: float) -> int:
    """Clients that each wait for an answer before they ask again."""
    end, count = time.perf_counter() + seconds, 0

    async def work() -> None:
        nonlocal count
        while (now := time.perf_counter()) < end:
            count += 1
            await client.ask(count, now)

    await asyncio.gather(*(work() for _ in range(clients)))
    return count


async def run(order: dict[str, Any]) -> dict[str, Any]:
    client = Client(order["port"], order["path"], [each.encode() for each in order["bodies"]])
    began = time.perf_counter()
    seconds = order["seconds"]
    if "rate" in order:
        options = {name: order[name] for name in ("rate", "seconds", "seed", "patience")}
        asked = await open_loop(client, **options)
    else:
        asked = await closed_loop(client, clients=order["clients"], seconds=seconds)
    took = time.perf_counter() - began
    client.close()
    warm = began + WARM_UP * seconds
    counted = sorted(latency for due, latency in client.latencies if due >= warm)
    return {
        "asked": asked,
        "statuses": dict(client.statuses),
        "seconds": took,
        "answered_per_second": sum(
            due + latency <= began + seconds for due, latency in client.latencies
        )
        / seconds,
        **{f"p{share}_ms": percentile(counted, share / 100) for share in (50, 95, 99)},
    }


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """In milliseconds, the smallest latency that this share does not exceed."""
    if not ordered:
        return None
    return 1e3 * ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Loader:
    """The process that asks."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "bench.common.load"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *details: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def open(
        self,
        port: int,
        path: str,
        bodies: Sequence[str],
        *,
        rate: float,
        seconds: float,
        seed: int,
        patience: float = PATIENCE,
    ) -> dict[str, Any]:
        """Requests at `rate` a second on average, whatever the answers do."""
        order = {"port": port, "path": path, "bodies": list(bodies), "seconds": seconds}
        return self._order(order | {"rate": rate, "seed": seed, "patience": patience})

    def closed(
        self, port: int, path: str, bodies: Sequence[str], *, clients: int, seconds: float
    ) -> dict[str, Any]:
        """As many requests as so many clients can have answered one after another."""
        order = {"port": port, "path": path, "bodies": list(bodies), "seconds": seconds}
        return self._order(order | {"clients": clients})

    def _order(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        result: dict[str, Any] = json.loads(self._process.stdout.readline())
        return result


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(asyncio.run(run(json.loads(line)))), flush=True)
