"""What the service counts, in Prometheus' text format: under the names of text-embeddings-inference
(te_*), which dashboards know, and more under litebert_*. No text of a request is a label."""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

from litebert import __version__
from litebert.files import encode
from litebert.serve.scheduler import QueueSizes, Served, Tick

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = tuple(float(2**power) for power in range(15))


class _Counter:
    """Numbers that only grow, by labels."""

    kind = "counter"

    def __init__(self, name: str, help: str) -> None:
        self.name, self.help = name, help
        self._values: defaultdict[tuple[tuple[str, str], ...], float] = defaultdict(float)

    def add(self, amount: float = 1, **labels: str) -> None:
        self._values[tuple(labels.items())] += amount

    def lines(self) -> Iterable[str]:
        escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
        for labels, value in sorted(self._values.items()):
            # a model may be named after an undecodable folder
            texts = {name: encode(text).decode().translate(escapes) for name, text in labels}
            shown = ",".join(f'{name}="{text}"' for name, text in texts.items())
            yield f"{self.name}{{{shown}}} {value:.15g}"


class _Histogram:
    """How often a number was at most each bound."""

    kind = "histogram"

    def __init__(self, name: str, help: str, bounds: Sequence[float] = _SECONDS) -> None:
        self.name, self.help, self._bounds = name, help, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self) -> Iterable[str]:
        total = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            total += count
            shown = "+Inf" if bound is None else f"{bound:g}"
            yield f'{self.name}_bucket{{le="{shown}"}} {total}'
        yield f"{self.name}_sum {self._sum:.15g}"
        yield f"{self.name}_count {total}"


class Metrics:
    """All numbers of a service. Requests are counted by the event loop, ticks by the thread that
    computes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._te_count = _Counter("te_request_count", "Requests, by the form of their input")
        self._te_success = _Counter("te_request_success", "Requests answered with 2xx")
        self._te_failure = _Counter("te_request_failure", "Requests refused, by kind of error")
        self._te_seconds = _Histogram("te_request_duration", "Seconds of a request")
        self._te_queue = _Histogram(
            "te_request_queue_duration", "Seconds until the first text is computed"
        )
        self._te_compute = _Histogram(
            "te_request_inference_duration", "Seconds from the first text to the last"
        )
        self._te_texts = _Histogram("te_batch_next_size", "Texts in a call", _SIZES)
        self._te_tokens = _Histogram("te_batch_next_tokens", "Tokens in a call", _SIZES)
        self._requests = _Counter("litebert_requests_total", "Requests, by path and status")
        self._texts = _Counter("litebert_texts_total", "Texts computed, by model and verb")
        self._tokens = _Counter("litebert_tokens_total", "Tokens computed, by model and verb")
        self._seconds = _Counter("litebert_compute_seconds_total", "Seconds that models ran")

    def count_request(self, path: str, status: int, seconds: float, *, error: str = "") -> None:
        """`path` is one of the routes. Only requests to a model are in te_*."""
        with self._lock:
            self._requests.add(path=path, status=str(status))
            self._te_count.add(method=path.rpartition("/")[2])
            if status < 300:
                self._te_success.add(method=path.rpartition("/")[2])
            else:
                self._te_failure.add(err=error)
            self._te_seconds.add(seconds)

    def count_tick(self, tick: Tick) -> None:
        with self._lock:
            self._te_texts.add(tick.items)
            self._te_tokens.add(tick.tokens)
            self._seconds.add(tick.seconds, model=tick.key.model)

    def count_served(self, served: Served) -> None:
        labels = {"model": served.key.model, "verb": served.key.verb}
        with self._lock:
            self._te_queue.add(served.waited_seconds)
            self._te_compute.add(served.seconds)
            self._texts.add(served.items, **labels)
            self._tokens.add(served.tokens, **labels)

    def text(self, queue: QueueSizes, *, is_ready: bool) -> str:
        """The page that Prometheus reads."""
        lines: list[str] = []
        with self._lock:
            for metric in vars(self).values():
                if isinstance(metric, _Counter | _Histogram):
                    lines += [f"# HELP {metric.name} {metric.help}."]
                    lines += [f"# TYPE {metric.name} {metric.kind}", *metric.lines()]
        gauges = {
            "te_queue_size": ("Requests in the queue", "", queue.jobs),
            "litebert_queue_tokens": ("Tokens in the queue", "", queue.tokens),
            "litebert_ready": ("1 while requests are accepted", "", int(is_ready)),
            "litebert_info": ("The version", f'{{version="{__version__}"}}', 1),
        }
        for name, (help, labels, value) in gauges.items():
            lines += [f"# HELP {name} {help}.", f"# TYPE {name} gauge", f"{name}{labels} {value}"]
        return "\n".join([*lines, ""])
