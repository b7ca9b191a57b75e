"""A service for the page on a loopback port, with invented predictions in the form of the real
ones: for tests of the page alone."""

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from litebert.infer.formats import guesses_to_dict, to_dict
from litebert.infer.verbs import Guess
from litebert.serve.access import PAGE_POLICY
from litebert.serve.app import PAGE
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    Span,
    SpanPrediction,
    TagPrediction,
)

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
MODELS: dict[str, dict[str, Any]] = {
    "base": {"verbs": ["fill", "embed"], "labels": None},
    "reviews": {
        "verbs": ["embed", "classify"],
        "labels": ["negative", "positive"],
        "exits": True,
    },
    "topics": {"verbs": ["classify"], "labels": ["<b>law</b>", "science", "art"]},
    "entailment": {
        "verbs": ["embed", "pair"],
        "labels": ["entailment", "neutral", "contradiction"],
    },
    "stars": {"verbs": ["regress"], "labels": None},
    "reading": {"verbs": ["choose"], "labels": None},
    "answers": {"verbs": ["answer"], "labels": None},
    "names": {"verbs": ["tag"], "labels": ["O", "B-PER", "I-PER", "B-LOC"]},
}
NUM_LAYERS = 12
WORDS = ("sea", "lake", "river", "<i>valley</i>", "town")


class RefusalError(Exception):
    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def classify(model: str, text: str) -> Prediction:
    if model == "topics":
        return MultiLabelPrediction(
            probabilities={"<b>law</b>": 0.71, "science": 0.55, "art": 0.08}
        )
    if "refuse" in text:
        raise RefusalError(400, "this row is refused, as a test")
    positive = 0.98 if "good" in text else 0.03
    probabilities = {"negative": 1 - positive, "positive": positive}
    return LabelPrediction(
        label=max(probabilities, key=probabilities.__getitem__), probabilities=probabilities
    )


def check_length(body: dict[str, Any]) -> None:
    if "too long" in str(body) and not body.get("truncate"):
        message = "texts[0] has 700 tokens, the model reads 512"
        raise RefusalError(422, message, "context_length_exceeded")


def answer(_: str, item: dict[str, str]) -> Prediction:
    word = "1884"
    start = item["context"].find(word)
    spans = (
        Span(text=word, start=start, end=start + len(word), score=-0.21),
        Span(text=item["context"][:3], start=0, end=3, score=-3.4),
    )
    return SpanPrediction(spans=spans, null_score=0.4, null_threshold=1.0 if start >= 0 else 0.0)


def tag(_: str, text: str) -> Prediction:
    words = text.split()
    names = {"Ada": "B-PER", "Lovelace": "I-PER", "Babbage": "I-PER", "Charles": "B-PER"}
    tags = tuple("B-LOC" if word == "London" else names.get(word, "O") for word in words)
    return TagPrediction(tags=tags, probabilities=(0.9,) * len(tags))


def fill(body: dict[str, Any]) -> list[dict[str, Any]]:
    guesses = [Guess(word, 0.6 / 2**i) for i, word in enumerate(WORDS)][: body["top"]]
    return [guesses_to_dict([guesses] * text.count("[MASK]")) for text in body["texts"]]


def layers(model: str, text: str, second: str | None = None) -> dict[str, Any]:
    """Distances that fall and rise, and for reviews a label that is surer with each layer."""
    depths = range(1, NUM_LAYERS + 1)
    exits = None
    if MODELS[model].get("exits"):
        answers = [
            {"label": label, "probabilities": {"negative": 1 - p, "positive": p}}
            for depth in depths
            for p in [1 - 0.7 / depth**0.9 if depth > 1 else 0.4]
            for label in ["positive" if p > 0.5 else "negative"]
        ]
        leaves = {
            "confidence": {"threshold": 0.8, "depth": 4},
            "patience": {"threshold": 4.0, "depth": 6},
        }
        exits = {"answers": answers, "leaves": leaves}
    return {
        "first": text,
        "second": second,
        "tokens": len(text.split()) + 2,
        "l2": [20 / depth + 2 * (depth == NUM_LAYERS) + 4 for depth in depths],
        "cosine": [1 - 0.5 / depth**1.2 for depth in depths],
        "exits": exits,
    }


def embed(text: str) -> list[float]:
    return [math.sin(len(text) + i) + 1.2 * ("rain" in text) for i in range(6)]


PREDICT: dict[str, tuple[str, Callable[[str, Any], Prediction]]] = {
    "classify": ("texts", classify),
    "regress": ("texts", lambda _, texts: NumberPrediction(value=len("".join(texts)) / 10)),
    "tag": ("texts", tag),
    "pair": (
        "pairs",
        lambda *_: LabelPrediction(
            label="neutral",
            probabilities={"entailment": 0.2, "neutral": 0.7, "contradiction": 0.1},
        ),
    ),
    "choose": (
        "items",
        lambda *_: ChoicePrediction(index=1, probabilities=(0.1, 0.8, 0.06, 0.04)),
    ),
    "answer": ("items", answer),
}


def respond(verb: str, body: dict[str, Any]) -> dict[str, Any]:
    model = body["model"]
    check_length(body)
    if verb == "embeddings":
        data = [{"index": i, "embedding": embed(text)} for i, text in enumerate(body["input"])]
        return {"object": "list", "model": model, "data": data}
    if verb == "fill":
        return {"model": model, "results": fill(body)}
    if verb == "layers":
        rows = body.get("pairs") or [[text] for text in body["texts"]]
        return {"model": model, "results": [layers(model, *row) for row in rows]}
    field, predict = PREDICT[verb]
    return {
        "model": model,
        "results": [to_dict(predict(model, each)) for each in body.get("pairs") or body[field]],
    }


class Service:
    """What a test sets and reads."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.key = ""
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.failures: list[tuple[int, str]] = []
        """Statuses and messages that the next requests get, in order."""
        self.gate = threading.Event()
        """Requests wait while it is clear."""
        self.gate.set()


@contextmanager
def page_service() -> Iterator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/v1/models":
                common = {"object": "model", "owned_by": "litebert", "max_length": 512}
                data = [
                    {
                        "id": name,
                        **common,
                        "engine": "onnx",
                        "int8": name == "base",
                        "layers": NUM_LAYERS,
                        "exits": False,
                        "tuned_to_embed": False,
                        **facts,
                    }
                    for name, facts in MODELS.items()
                ]
                self.reply(lambda: {"object": "list", "data": data})
                return
            file = PAGE / ("index.html" if path == "/" else path.removeprefix("/page/"))
            if file.parent != PAGE or not file.is_file():
                self.send(404, b"{}", "application/json")
            else:
                self.send(200, file.read_bytes(), TYPES[file.suffix])

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            verb = self.path.removeprefix("/v1/")
            service.requests.append((verb, body))
            service.gate.wait()
            self.reply(lambda: respond(verb, body))

        def reply(self, make: Callable[[], dict[str, Any]]) -> None:
            try:
                if service.key and self.headers["Authorization"] != f"Bearer {service.key}":
                    raise RefusalError(401, "give the key")
                if self.command == "POST" and service.failures:
                    raise RefusalError(*service.failures.pop(0))
                status, data = 200, make()
            except RefusalError as refusal:
                status, data = (
                    refusal.status,
                    {"error": {"message": str(refusal), "code": refusal.code}},
                )
            self.send(status, json.dumps(data).encode(), "application/json")

        def send(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", PAGE_POLICY)
            self.send_header("X-Content-Type-Options", "nosniff")
            if status == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service = Service(f"http://127.0.0.1:{server.server_port}/")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield service
    finally:
        service.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
