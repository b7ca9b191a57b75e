"""Depth-wise continuous batching: rows of tokens in, at any time; what their heads read out, row by
row. No torch.

Where all layers are one layer, a batch need not be finished before the next begins. At each tick
the layer runs once over all rows, whatever their depth; rows that are done or leave early go, and
new ones take their place. (For decoders: continuous depth batching, arXiv 2608.09444.) Rows share a
call where the plan applies the same parameters to them; adapters belong to one depth.

Rows of different lengths share a call while little of it is padding. They are sorted by length
anew at every tick: moving a token's state costs about a hundredth of computing its layer, so what
counts is padding, and calls too small for a matmul to be efficient.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from litebert.config import EncoderConfig, HeadKind
from litebert.infer.batches import padded_rows
from litebert.infer.engine import Engine
from litebert.packing import HostBatch
from litebert.shapes import Bool, Float, Int
from litebert.tasks.decode.exits import judge, new_memory

CALL_TOKENS = 32
"""What a call costs beside its tokens, in tokens: reading the layer's weights, and overhead."""


@dataclass(eq=False)
class Row:
    """A row of tokens on its way through the layers."""

    owner: Any
    """Whoever waits for it; several rows may have one owner."""
    token_ids: Int[np.ndarray, " tokens"]
    segment_ids: Int[np.ndarray, " tokens"] | None = None
    needed: Int[np.ndarray, " needed"] | None = None
    """Columns whose last states are read; None for all."""
    exit_head: HeadKind | None = None
    """The head that reads [CLS] after each layer, by the engine's rule; None for no early exit."""
    depth: int = 0
    """Layers behind it."""
    is_alone: bool = False
    """Whether it shares no call: one that it shared has failed."""
    memory: np.ndarray | None = None
    """What the rule remembers of it."""

    def __len__(self) -> int:
        return len(self.token_ids)


class Done(NamedTuple):
    """Rows that have come to their end together."""

    rows: list[Row]
    states: Any
    """Finished states of their needed columns, or of all, as rows of one array; None where logits
    are there."""
    mask: Bool[np.ndarray, "rows seq"] | None
    """True at real tokens; None where no row is padded or only some columns are needed."""
    logits: Float[np.ndarray, "rows outputs"] | None = None
    """Of rows that could leave early."""


class Failed(NamedTuple):
    """A row that an engine refused, alone."""

    row: Row
    error: Exception


class _Call(NamedTuple):
    """Rows that one call of an engine computes."""

    rows: list[Row]
    states: Any
    batch: HostBatch
    is_narrow: bool = False
    """Whether only needed columns come out."""


def shares_layers(config: EncoderConfig) -> bool:
    """Whether rows at different depths can share a call at all."""
    plan = config.plan()
    return not config.adapter_rank and len(set(plan)) < len(plan)


def can_step(config: EncoderConfig) -> bool:
    """Whether states between layers are all that is needed to continue: reversible layers have
    two streams."""
    return not config.reversible


class Depthwise:
    """The rows that an engine is computing. Not for several threads at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        config = engine.config
        assert can_step(config.encoder)
        plan = config.encoder.plan()
        self._last = len(plan)
        self._due: list[Hashable] = (
            list(range(len(plan))) if config.encoder.adapter_rank else list(plan)
        )
        """By depth what the next call applies."""
        self._has_own_exits = any(head.exits == "each" for head in config.heads)
        self._new: list[Row] = []
        self._calls: list[_Call] = []

    def __len__(self) -> int:
        return len(self._new) + sum(len(call.rows) for call in self._calls)

    def admit(self, rows: Iterable[Row]) -> None:
        """Compute these too, from the next tick on."""
        self._new += rows

    def drop(self, is_gone: Callable[[Any], bool]) -> None:
        """Forget the rows of owners that are gone."""
        self._new = [row for row in self._new if not is_gone(row.owner)]
        calls, self._calls = self._calls, []
        for call in calls:
            stay = [at for at, row in enumerate(call.rows) if not is_gone(row.owner)]
            if stay:
                self._calls.append(call if len(stay) == len(call.rows) else self._some(call, stay))

    def tick(self) -> list[Done | Failed]:
        """Apply one layer to every row; the rows that are done or could not be computed."""
        ended: list[Done | Failed] = []
        entering, self._new = self._new, []
        calls, self._calls = self._calls, []
        for rows in self._cut(entering):
            try:
                calls.append(self._start(rows))
            except Exception as error:
                self._new += _isolated(rows, error, ended)
        for call in self._regrouped(calls):
            try:
                after = self._layer(call, ended)
            except Exception as error:
                after = call if _isolated(call.rows, error, ended) else None
            if after is not None:
                self._calls.append(after)
        return ended

    # ---- which rows share a call

    def _cut(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Rows by like lengths: a new call begins where padding would cost more than the call, or
        where the batch is full."""
        groups = [[row] for row in rows if row.is_alone]
        group: list[Row] = []
        padding = 0
        for row in sorted((row for row in rows if not row.is_alone), key=len, reverse=True):
            if group:
                longest = len(group[0])
                padding += longest - len(row)
                is_full = (len(group) + 1) * longest > self.engine.batch_tokens
                if padding <= CALL_TOKENS and not is_full:
                    group.append(row)
                    continue
            group, padding = [row], 0
            groups.append(group)
        return groups

    def _regrouped(self, calls: Sequence[_Call]) -> list[_Call]:
        """All rows again, by what is due for them and by length."""
        places = {id(row): (call, at) for call in calls for at, row in enumerate(call.rows)}
        due: defaultdict[tuple[Hashable, bool], list[Row]] = defaultdict(list)
        for call in calls:
            for row in call.rows:
                # the last layer computes only the columns that are needed
                is_narrow = row.needed is not None and row.depth == self._last - 1
                due[self._due[row.depth], is_narrow].append(row)
        return [
            self._joined(group, [places[id(row)] for row in group], is_narrow=is_narrow)
            for (_, is_narrow), rows in due.items()
            for group in self._cut(rows)
        ]

    def _joined(
        self, rows: list[Row], places: Sequence[tuple[_Call, int]], *, is_narrow: bool
    ) -> _Call:
        """Rows from their places in calls, side by side; what already is so is not copied."""
        before, _ = places[0]
        width = max(map(len, rows))
        if rows == before.rows and width == before.states.shape[1]:
            return (
                before._replace(batch=self._batch(rows, True), is_narrow=True)
                if is_narrow
                else before
            )
        parts: dict[int, tuple[Any, list[int], list[int]]] = {}
        for target, (call, source) in enumerate(places):
            _, sources, targets = parts.setdefault(id(call), (call.states, [], []))
            sources.append(source)
            targets.append(target)
        states = self.engine.gather(
            [
                (states, np.array(sources), np.array(targets))
                for states, sources, targets in parts.values()
            ],
            len(rows),
            width,
        )
        return _Call(rows, states, self._batch(rows, is_narrow), is_narrow)

    def _some(self, call: _Call, chosen: Sequence[int]) -> _Call:
        rows = [call.rows[at] for at in chosen]
        return _Call(rows, call.states[np.array(chosen)], self._batch(rows, False), False)

    def _batch(self, rows: Sequence[Row], is_narrow: bool) -> HostBatch:
        needed = [row.needed for row in rows if row.needed is not None] if is_narrow else None
        token_ids = [row.token_ids for row in rows]
        return padded_rows(token_ids, needed, pad_id=self.engine.tokenizer.pad_id)

    # ---- calls of the engine

    def _start(self, rows: list[Row]) -> _Call:
        batch = self._batch(rows, False)
        embedded = batch
        if any(row.segment_ids is not None for row in rows):
            segment_ids = np.zeros_like(batch.arrays["token_ids"])
            for number, row in enumerate(rows):
                if row.segment_ids is not None:
                    segment_ids[number, : len(row)] = row.segment_ids
            embedded = replace(batch, arrays={**batch.arrays, "segment_ids": segment_ids})
        return _Call(rows, self.engine.start(embedded), batch)

    def _layer(self, call: _Call, ended: list[Done | Failed]) -> _Call | None:
        """The call after one more layer, without the rows that are done, which are added to
        `ended`."""
        number = call.rows[0].depth
        states = self.engine.layer(number, call.states, call.batch, last=call.is_narrow)
        done = self._leaving(call.rows, states)
        last = [
            at
            for at, row in enumerate(call.rows)
            if row.exit_head is None and row.depth == self._last - 1
        ]
        if last:
            finished = states if len(last) == len(call.rows) else states[np.array(last)]
            mask = None if call.is_narrow else call.batch.arrays.get("mask")
            done.append(
                Done(
                    [call.rows[at] for at in last],
                    self.engine.finish(finished),
                    None if mask is None else mask[last],
                )
            )
        for row in call.rows:
            row.depth += 1
        ended += done
        after = call._replace(states=states)
        if not done:
            return after
        gone = {id(row) for each in done for row in each.rows}
        stay = [at for at, row in enumerate(call.rows) if id(row) not in gone]
        return self._some(after, stay) if stay else None

    def _leaving(self, rows: Sequence[Row], states: Any) -> list[Done]:
        """The rows that the engine's rule lets go, with their logits."""
        by_head: defaultdict[HeadKind, list[int]] = defaultdict(list)
        for at, row in enumerate(rows):
            if row.exit_head is not None:
                by_head[row.exit_head].append(at)
        done: list[Done] = []
        for head, chosen in by_head.items():
            read = [rows[at] for at in chosen]
            logits = self._exit_logits(head, read, states[np.array(chosen), :1])
            leaves = self._judge(read, head, logits)
            if leaves.any():
                left = [row for row, leave in zip(read, leaves, strict=True) if leave]
                done.append(Done(left, None, None, logits[leaves]))
        return done

    def _exit_logits(self, head: HeadKind, rows: Sequence[Row], first: Any) -> np.ndarray:
        """What the exits after each row's layer read in its first state."""
        first, batch = self.engine.finish(first), HostBatch(arrays={}, longest=1, head=head)
        depths = np.array([row.depth + 1 for row in rows])
        # one head for all depths, or one for each
        readers = depths if self._has_own_exits else np.where(depths == self._last, depths, 0)
        logits = np.zeros((0, 0), np.float32)
        for reader in np.unique(readers):
            chosen = readers == reader
            depth = int(depths[chosen][0])
            read = self.engine.exit(depth, batch, first[np.flatnonzero(chosen)])
            if not logits.size:
                logits = np.zeros((len(rows), read.shape[1]), np.float32)
            logits[chosen] = read
        return logits

    def _judge(
        self, rows: Sequence[Row], head: HeadKind, logits: np.ndarray
    ) -> Bool[np.ndarray, " rows"]:
        """Which rows leave; what the rule remembers of the others stays with them."""
        rule = self.engine.exit_rule
        assert rule is not None
        fresh = new_memory(head, logits)
        memory = np.stack(
            [
                each if row.memory is None else row.memory
                for row, each in zip(rows, fresh, strict=True)
            ]
        )
        leaves, memory = judge(rule, head, logits, memory)
        for row, each in zip(rows, memory, strict=True):
            row.memory = each
        leaves[[row.depth + 1 == self._last for row in rows]] = True
        return leaves


def _isolated(rows: list[Row], error: Exception, ended: list[Done | Failed]) -> list[Row]:
    """What is left of rows whose call failed: each for itself from now on, so that it fails
    alone."""
    if len(rows) == 1:
        ended.append(Failed(rows[0], error))
        return []
    for row in rows:
        row.is_alone = True
    return rows
