"""How texts are computed, tick by tick: batch after batch, or layer by layer.

Static batching forms a batch and computes it to its end. Depth-wise batching applies one layer at a
time to all texts that a model has, at whatever depth they are, so that a text joins at any tick and
leaves at its own last layer (infer/depthwise.py).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from litebert.errors import LitebertError
from litebert.infer.continuous import Continuous
from litebert.serve.scheduler import Job, Ticket

if TYPE_CHECKING:
    from litebert.serve.models import ServedModel

DEPTH_TOKENS, THREAD_TOKENS = 256, 128
"""In the layers at once: the least, and for each thread. A processor computes so many about as fast
as more (bench/cpu/depthwise.py), and with more in the layers each text is answered later."""
Compute = Callable[[Sequence[Any]], Sequence[Any]]
"""From items to one result for each."""


class Static:
    """Everything that was admitted, at the next tick, in one call."""

    def __init__(self, compute: Compute, *, max_tokens: int) -> None:
        self._compute, self.max_tokens = compute, max_tokens
        self._tickets: list[Ticket] = []

    def admit(self, ticket: Ticket) -> None:
        self._tickets.append(ticket)

    def drop(self, is_gone: Callable[[Ticket], bool]) -> None:
        self._tickets = [ticket for ticket in self._tickets if not is_gone(ticket)]

    def tick(self) -> list[tuple[Ticket, Any]]:
        tickets, self._tickets = self._tickets, []
        return self._run(tickets)

    def _run(self, tickets: list[Ticket]) -> list[tuple[Ticket, Any]]:
        try:
            results = list(self._compute([ticket.item for ticket in tickets]))
        except Exception as error:
            by_job: defaultdict[Job, list[Ticket]] = defaultdict(list)
            for ticket in tickets:
                by_job[ticket.job].append(ticket)
            if len(by_job) == 1 or not isinstance(error, LitebertError):
                return [(ticket, error) for ticket in tickets]
            # what one client sent fails alone
            return [pair for each in by_job.values() for pair in self._run(each)]
        return list(zip(tickets, results, strict=True))


class Layered:
    """One layer of everything that was admitted, at each tick."""

    def __init__(self, served: "ServedModel", *, max_tokens: int | None = None) -> None:
        engine = served.predictor.engine
        if max_tokens is None and engine.threads is not None:
            max_tokens = max(DEPTH_TOKENS, THREAD_TOKENS * engine.threads.count)
        self.max_tokens = max_tokens or engine.batch_tokens
        self._served = served
        self._continuous = Continuous(served.predictor)

    def admit(self, ticket: Ticket) -> None:
        key: Any = ticket.job.key
        self._continuous.admit(key.verb, ticket.item, ticket, top=key.top)

    def drop(self, is_gone: Callable[[Ticket], bool]) -> None:
        self._continuous.drop(is_gone)

    def tick(self) -> list[tuple[Ticket, Any]]:
        return [
            (
                ticket,
                result
                if isinstance(result, Exception)
                else self._served.formed(ticket.job.key, ticket.item, result),
            )
            for ticket, result in self._continuous.tick()
        ]
