"""A Predictor whose inputs come and go between layers: one input of a verb in, at any time; its
result out, when its rows have been through the layers. No torch.

Every verb becomes rows of tokens (Depthwise computes them) and an end: a head that reads [CLS] of
many rows at once, guesses for masks, a pooled vector, or a head that reads all states of an input.
The results are those of the Predictor, in whatever company an input is computed, to rounding; int8
of ONNX Runtime scales by batch.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from litebert.config import EXIT_HEADS, POOLED_HEADS, HeadKind, ModelConfig
from litebert.infer.batches import FIRST
from litebert.infer.depthwise import Depthwise, Done, Failed, Row, can_step
from litebert.infer.predictor import Predictor
from litebert.infer.verbs import Verb, check_guesses, check_vectors, encode_masked
from litebert.packing import HostBatch
from litebert.tasks.decode.decode import Outputs, Query, decode
from litebert.tasks.encode.encode import encode, encode_texts
from litebert.tasks.predictions import check_numbers


@dataclass(eq=False)
class _Input:
    """One input of a verb, until it has its result."""

    ticket: Hashable
    end: Hashable
    """What reads the last states; rows of inputs with equal ends are read together."""
    rows: list[Row]
    result: Callable[[list[Any]], Any]
    """From what was read of each row to the result."""
    read: dict[int, Any]
    """By row."""
    top: int = 0


def can_continue(config: ModelConfig, verb: Verb) -> bool:
    """Whether a verb's inputs can be computed layer by layer. A generator that fills masks is
    another encoder than the one whose layers these are."""
    return can_step(config.encoder) and not (verb == "fill" and config.generator is not None)


class Continuous:
    """The inputs that a predictor is computing. Not for several threads at once."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._engine = predictor.engine
        self._depthwise = Depthwise(predictor.engine)

    def __len__(self) -> int:
        """Rows of tokens in the layers."""
        return len(self._depthwise)

    def admit(self, verb: Verb, item: Any, ticket: Hashable, *, top: int = 5) -> None:
        """Compute this input too. `item` is a text (fill, embed) or an example. LitebertError for
        one that the model cannot read."""
        if verb == "fill":
            added = self._fill(item, ticket, top)
        elif verb == "embed":
            added = self._embed(item, ticket)
        else:
            added = self._task(verb, item, ticket)
        for row in added.rows:
            row.owner = added
        self._depthwise.admit(added.rows)

    def drop(self, is_gone: Callable[[Any], bool]) -> None:
        """Forget inputs whose tickets are gone."""
        self._depthwise.drop(lambda added: is_gone(added.ticket))

    def tick(self) -> list[tuple[Any, Any]]:
        """One layer for all; the tickets that are done, each with its result or an exception."""
        results: list[tuple[Any, Any]] = []
        failures: dict[int, tuple[_Input, Exception]] = {}
        for ended in self._depthwise.tick():
            if isinstance(ended, Failed):
                failures[id(ended.row.owner)] = (ended.row.owner, ended.error)
            else:
                self._read(ended, results, failures)
        if failures:
            self._depthwise.drop(lambda added: id(added) in failures)
        if not len(self._depthwise):
            self._engine.release()
        return results + [(added.ticket, error) for added, error in failures.values()]

    # ---- from inputs to rows

    def _fill(self, text: str, ticket: Hashable, top: int) -> _Input:
        tokenizer = self._engine.tokenizer
        limit = self._engine.config.encoder.max_positions
        ids = encode_masked(tokenizer, text, max_length=limit)
        row = Row(None, ids, needed=np.flatnonzero(ids == tokenizer.mask_id))
        top = min(top, tokenizer.vocab_size)
        return _Input(ticket, "guess", [row], lambda read: check_guesses(read[0]), {}, top)

    def _embed(self, text: str, ticket: Hashable) -> _Input:
        pooling, normalize = self._predictor.embedding()
        limit = self._engine.config.encoder.max_positions
        (ids,) = encode_texts(self._engine.tokenizer, [text], max_length=limit)
        row = Row(None, ids, needed=FIRST if pooling == "cls" else None)

        def result(read: list[np.ndarray]) -> np.ndarray:
            vector = check_vectors(read[0])
            scaled: np.ndarray = vector / max(float(np.linalg.norm(vector)), 1e-12)
            return scaled if normalize else vector

        return _Input(ticket, ("pool", pooling), [row], result, {})

    def _task(self, verb: Verb, example: Any, ticket: Hashable) -> _Input:
        card = self._predictor.cards[verb]
        head: HeadKind = card.task.head
        inputs = encode(card, [example], self._engine.tokenizer)
        units = np.arange(len(inputs))
        batch = inputs.batch(units).padded()
        lengths = inputs.row_lengths.tolist()
        is_pooled = head in POOLED_HEADS
        leaves = self._engine.exit_rule is not None and head in EXIT_HEADS
        rows = [
            Row(
                None,
                ids[:length],
                segments[:length],
                needed=FIRST if is_pooled else None,
                exit_head=head if leaves else None,
            )
            for ids, segments, length in zip(
                batch.arrays["token_ids"], batch.arrays["segment_ids"], lengths, strict=True
            )
        ]

        def result(read: list[Any]) -> Any:
            outputs = self._outputs(head, batch, rows, read)
            query = Query(
                card=card, inputs=inputs, examples=[example], batches=[(units, batch, outputs)]
            )
            (prediction,) = check_numbers(decode(query))
            return prediction

        return _Input(ticket, ("logits", head) if is_pooled else "states", rows, result, {})

    def _outputs(
        self, head: HeadKind, batch: HostBatch, rows: list[Row], read: list[Any]
    ) -> Outputs:
        """What the head computes of an input's rows."""
        if head in POOLED_HEADS:
            depths = np.array([row.depth for row in rows]) if rows[0].exit_head else None
            return Outputs(logits=np.stack(read), depths=depths)
        parts = [(each[None], np.zeros(1, int), np.array([at])) for at, each in enumerate(read)]
        states = self._engine.gather(parts, len(rows), batch.longest)
        return self._engine.head(batch, states)

    # ---- from last states to results

    def _read(
        self,
        done: Done,
        results: list[tuple[Any, Any]],
        failures: dict[int, tuple[_Input, Exception]],
    ) -> None:
        """Read rows, those with one end together, and add inputs of which all are read."""
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        for at, row in enumerate(done.rows):
            groups[row.owner.end].append(at)
        for end, chosen in groups.items():
            rows = [done.rows[at] for at in chosen]
            try:
                values = self._values(end, done, rows, np.array(chosen))
            except Exception as error:
                failures |= {id(row.owner): (row.owner, error) for row in rows}
                continue
            for row, value in zip(rows, values, strict=True):
                added = row.owner
                added.read[id(row)] = value
                if len(added.read) < len(added.rows):
                    continue
                try:
                    read = [added.read[id(each)] for each in added.rows]
                    results.append((added.ticket, added.result(read)))
                except Exception as error:
                    failures[id(added)] = (added, error)

    def _values(self, end: Any, done: Done, rows: list[Row], chosen: np.ndarray) -> list[Any]:
        """What each row's end reads."""
        if done.logits is not None:
            return list(done.logits[chosen])
        states = done.states if len(rows) == len(done.rows) else done.states[chosen]
        if end == "states":
            return [states[at, : len(row)] for at, row in enumerate(rows)]
        if end == "guess":
            return self._guesses(rows, states)
        kind, what = end
        if kind == "pool":
            return list(
                self._engine.pool(states, None if done.mask is None else done.mask[chosen], what)
            )
        token_ids = np.array([row.token_ids[:1] for row in rows], np.int64)
        batch = HostBatch(arrays={"token_ids": token_ids}, longest=1, head=what)
        return list(self._engine.head(batch, states).logits)

    def _guesses(self, rows: list[Row], states: Any) -> list[Any]:
        """Of each row, for each of its masks its best tokens."""
        counts = [len(row.needed) for row in rows if row.needed is not None]
        is_mask = np.arange(states.shape[1]) < np.array(counts)[:, None]
        at, column = np.nonzero(is_mask)
        most = max(row.owner.top for row in rows)
        ids, probabilities = self._engine.guess(states[at, column], most)
        named = iter(zip(ids.tolist(), probabilities.tolist(), strict=True))
        return [
            [
                self._engine.named(best[: row.owner.top], values[: row.owner.top])
                for best, values in (next(named) for _ in range(count))
            ]
            for row, count in zip(rows, counts, strict=True)
        ]
