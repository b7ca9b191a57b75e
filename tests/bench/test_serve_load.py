"""The load on the service: clients that count from when a request was due, and what is made of
their figures."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bench.common.load import Loader, percentile, run
from bench.cpu import depthwise, serve_load
from litebert.infer.predictor import load


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """Answers 200 to {"ok": true}, else 429; counts connections."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            connections.add(self.client_address)
            self.send_response(200 if body["ok"] else 429)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *args: Any) -> None:
            pass

    connections: set[Any] = set()
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.connections = connections  # type: ignore[attr-defined]
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield listening
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_clients_keep_their_connections(server: Any) -> None:
    bodies = ['{"ok": true}', '{"ok": true}', '{"ok": false}']
    with Loader() as loader:
        closed = loader.closed(server.server_port, "/", bodies, clients=3, seconds=0.4)
        assert len(server.connections) <= 3
        opened = loader.open(server.server_port, "/", bodies, rate=100, seconds=0.4, seed=0)
    for figures in (closed, opened):
        assert set(figures["statuses"]) <= {"200", "429", "none"}
        assert sum(figures["statuses"].values()) == figures["asked"] > 5
        assert 0 < figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"]
    assert closed["statuses"]["429"] == pytest.approx(closed["asked"] / 3, abs=1)


def test_a_server_that_is_not_there_answers_nothing() -> None:
    order = {"port": 1, "path": "/", "bodies": ["{}"], "seconds": 0.05, "rate": 100.0, "seed": 0}
    order |= {"patience": 1.0}
    figures = asyncio.run(run(order))
    assert figures["statuses"].get("0", 0) == figures["asked"]
    assert figures["p99_ms"] is None


def test_percentiles() -> None:
    assert percentile([], 0.5) is None
    assert percentile([0.001], 0.99) == 1
    assert percentile([n / 1000 for n in range(1, 101)], 0.99) == pytest.approx(99)


def test_the_limit_holds_for_latencies_and_answers() -> None:
    point = {"statuses": {"200": 9}, "p99_ms": 200.0}
    assert serve_load.is_within(point)
    assert not serve_load.is_within(point | {"p99_ms": 251.0})
    assert not serve_load.is_within(point | {"p99_ms": None})
    assert not serve_load.is_within(point | {"statuses": {"200": 9, "429": 1}})
    assert not serve_load.is_within(point | {"statuses": {"200": 9, "none": 1}})


def test_the_limit_is_searched_between_loads() -> None:
    class Fake(Loader):
        """Answers 100 requests a second within the limit, and no more."""

        def __init__(self) -> None:
            self.rates: list[float] = []

        def closed(self, *args: Any, **options: Any) -> dict[str, Any]:
            return {"answered_per_second": 120.0}

        def open(self, *args: Any, **options: Any) -> dict[str, Any]:
            rate = options["rate"]
            self.rates.append(rate)
            return {"statuses": {"200": 9}, "p99_ms": 100.0 if rate <= 100 else 900.0}

    fake = Fake()
    loads = {"fake": serve_load.Load(fake, 1, "/", [], 1.0)}
    figures = serve_load.measure_in_turns(loads, serve_load.SHARES, 3)["fake"]
    assert fake.rates == pytest.approx([36, 72, 96, 114, 132, 105, 100.5])
    assert figures["within_limit"] == 96
    assert figures["closed_loop_rounds"] == [120.0] * 3
    assert [point["offered"] for point in figures["points"]] == sorted(fake.rates)


def test_the_picture_and_the_ratios(tmp_path: Path) -> None:
    def load(scale: float) -> dict[str, Any]:
        points = [
            {"offered": rate * scale, "p50_ms": 10.0 * rate, "p99_ms": 30.0 * rate}
            for rate in (1, 5, 9)
        ]
        return {"closed_loop": 9 * scale, "within_limit": 5 * scale, "points": points}

    names = ("litebert depth", "litebert static")
    loads = {f"{name}{end}": load(4) for end in ("", ", with exits") for name in names}
    loads |= {"fastapi": load(1), "infinity-emb (onnx int8)": load(2)}
    ratios = serve_load.ratios(loads)
    assert ratios["depth / fastapi, within_limit"] == 4
    assert ratios["depth / infinity-emb, closed_loop"] == 2
    assert ratios["depth / static, with exits, closed_loop"] == 1
    alone = serve_load.ratios(dict(list(loads.items())[:4]))  # on a GPU there is no peer
    assert alone.keys() == {name for name in ratios if "depth / static" in name}
    figures = {
        "loads": loads,
        "exits": {"mean_depth": 5.5, "layers": 12},
        "shape": "test",
        "threads": 2,
        "limit_ms": 250,
    }
    serve_load.draw(figures, tmp_path / "load.json")
    assert (tmp_path / "load.svg").read_text().startswith("<?xml")
    assert (tmp_path / "load.png").stat().st_size > 10_000


def test_the_table_of_sizing() -> None:
    rates = {"16 tokens": 110.6, "128 tokens": 8.3}
    table = serve_load.sizing_table({"shape": "tiny", "requests_per_second_a_core": rates})
    assert table.splitlines() == [
        "| tokens of a text (tiny) | requests a second, a core |",
        "| --- | --- |",
        "| 16 | 111 |",
        "| 128 | 8 |",
    ]


def test_texts_and_exits_are_as_stated(tmp_path: Path) -> None:
    encoder = serve_load.sizes_of("tiny")
    tokenizer = serve_load.Tokenizer.load(serve_load.default_model().folder)
    texts = serve_load.made_texts(40, 8, 128)
    lengths = [len(ids) + 2 for ids in tokenizer.encode_batch(texts)]
    assert 8 <= min(lengths) < 30
    assert 100 < max(lengths) <= 128
    model = serve_load.save(tmp_path, encoder, "each")
    threshold = serve_load.threshold_of(model, texts, 2)
    depths = serve_load.depths_of(model, texts, threshold)
    assert depths["layers"] == 3
    assert 1 < depths["mean_depth"] < 3
    predictor = load(model, device="cpu", threads=1, exit=serve_load.CRITERION, threshold=threshold)
    figures = depthwise.measure(predictor, texts, rounds=1)
    assert figures["times one call"]["one call"] == 1
    tokens = [str(most) for most in depthwise.TOKENS]
    assert list(figures["ms in the layers"]) == tokens
    assert set(figures["cpu_seconds"]) == {"one call", *tokens}
