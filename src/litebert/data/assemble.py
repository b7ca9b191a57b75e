"""Parcels in, shards out, in order: what is there already is taken over, the rest is made.
 A shard ends where a parcel does, so that its beginning is a position in the corpus from which
anyone may go on. It is published first and noted in the journal second: a build ended anywhere has
lost only the shard that was open.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from litebert.data.bad_rows import BadRowPolicy, BadRows
from litebert.data.build_plan import Journal, Record, shard_name
from litebert.data.corpus import CorpusFile, CorpusOptions
from litebert.data.encode import Encoded, Parcel, Position, parcels
from litebert.data.engines import Run
from litebert.data.shard_writer import ShardWriter

NOTED_ROWS = 10


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a build is."""

    file: int
    """Number of the file that is being read."""
    offset: int
    """Bytes read of it, as it lies on the disk."""
    text_bytes: int
    """Encoded since this start."""
    tokens: int
    """In all shards up to here."""


class Assembler:
    """One start of a build, at work."""

    def __init__(
        self,
        files: list[CorpusFile],
        options: CorpusOptions,
        journal: Journal,
        *,
        shard_tokens: int,
        dtype: str,
        watch: Callable[[Progress], None] | None = None,
    ) -> None:
        self._files = files
        self._options = options
        self._journal = journal
        self._shard_tokens = shard_tokens
        self._dtype = dtype
        self._watch = watch
        self.num_reused = 0
        self.encoded_bytes = 0
        self.noted: list[str] = []
        """The first bad rows of this start."""

    def shards(self, run: Run) -> Iterator[Record]:
        """The records of all shards; the last may hold no token, only bad rows."""
        number, position, end, tokens = 0, (0, 0), (len(self._files), 0), 0
        while position != end:
            known = self._journal.find(number, position)
            self.num_reused += bool(known)
            for record in [known] if known else self._make(number, position, tokens, run):
                yield record
                number, position = number + 1, (record["end"][0], record["end"][1])
                tokens += record["tokens"]

    def _make(self, number: int, start: Position, tokens: int, run: Run) -> Iterator[Record]:
        """Shards from `start` on, up to one that is there already, or to the end of the corpus."""
        shard = self._open(number, start)
        try:
            with closing(run(parcels(self._files, self._options, start))) as stream:
                for parcel, encoded in stream:
                    joined = bool(encoded.document_joined[:1].any())
                    # A document is not cut, unless it makes a shard twice as large as it was to be.
                    if shard.num_tokens >= self._shard_tokens * (2 if joined else 1):
                        yield shard.finish(parcel.start)
                        number, tokens = number + 1, tokens + shard.num_tokens
                        if self._journal.find(number, parcel.start):
                            return
                        shard = self._open(number, parcel.start)
                    self._add(shard, parcel, encoded, tokens)
            yield shard.finish((len(self._files), 0))
        finally:
            shard.abandon()

    def _open(self, number: int, start: Position) -> "_OpenShard":
        return _OpenShard(self._journal, number, start, self._dtype, self._options.bad_rows)

    def _add(self, shard: "_OpenShard", parcel: Parcel, encoded: Encoded, tokens: int) -> None:
        shard.add(encoded)
        self.noted += map(str, encoded.bad[: NOTED_ROWS - len(self.noted)])
        self.encoded_bytes += encoded.text_bytes
        if self._watch:
            file, offset = parcel.files[-1], parcel.pieces[-1].offset
            total = tokens + shard.num_tokens
            self._watch(
                Progress(file=file, offset=offset, text_bytes=self.encoded_bytes, tokens=total)
            )


class _OpenShard:
    """A shard and its bad rows, until they are published."""

    def __init__(
        self, journal: Journal, number: int, start: Position, dtype: str, policy: BadRowPolicy
    ) -> None:
        name = shard_name(number)
        self._journal = journal
        self._number = number
        self._start = start
        self._writer = ShardWriter(journal.folder, name, dtype)
        self._bad = BadRows(policy, journal.quarantine(number))
        self._finished = False

    @property
    def num_tokens(self) -> int:
        return self._writer.num_tokens

    def add(self, encoded: Encoded) -> None:
        for row in encoded.bad:
            self._bad.add(row.location, row.reason, row.data)
        self._writer.add(encoded)

    def finish(self, end: Position) -> Record:
        self._finished = True
        self._bad.finish()
        places = {
            "start": list(self._start),
            "end": list(end),
            "quarantined": self._bad.count if self._bad.policy == "quarantine" else 0,
        }
        if not self.num_tokens:
            self._writer.abandon()
            return self._writer.record({}) | places
        record = self._writer.finish(self._journal.out) | places
        self._journal.write(self._number, record)
        return record

    def abandon(self) -> None:
        if not self._finished:
            self._writer.abandon()
            self._bad.abandon()
