"""Parcels in, shards out, in order: finished shards are reused, the rest is written.

A shard is three .npy files that grow on the disk, not in memory: NNNNN.tokens.npy,
NNNNN.sentences.npy, NNNNN.documents.npy (docs/data.md). It ends where a parcel does, so that its
beginning is a position in the corpus from which a build can resume. It is published first and
recorded in the journal second: an interrupted build loses only the open shard.
"""

import io
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from litebert.data.bad_rows import BadRowPolicy, BadRows
from litebert.data.chunks import CorpusFile
from litebert.data.corpus import CorpusOptions
from litebert.data.encode import CorpusPosition, Encoded, Parcel, parcels
from litebert.data.journal import Journal, Record, shard_name
from litebert.data.runners import Run
from litebert.data.shards import PARTS
from litebert.files import publish, sha256

_NOTED_ROWS = 10
_HEADER_BYTES = 128


@dataclass(frozen=True, kw_only=True)
class BuildProgress:
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
    """One start of a build."""

    def __init__(
        self,
        files: list[CorpusFile],
        options: CorpusOptions,
        journal: Journal,
        *,
        shard_tokens: int,
        dtype: str,
        watch: Callable[[BuildProgress], None] | None = None,
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
            finished = self._journal.find(number, position)
            self.num_reused += bool(finished)
            for record in [finished] if finished else self._make(number, position, tokens, run):
                yield record
                number, position = number + 1, (record["end"][0], record["end"][1])
                tokens += record["tokens"]

    def _make(self, number: int, start: CorpusPosition, tokens: int, run: Run) -> Iterator[Record]:
        """Shards from `start` on, up to one that is finished, or to the end of the corpus."""
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

    def _open(self, number: int, start: CorpusPosition) -> "_OpenShard":
        return _OpenShard(self._journal, number, start, self._dtype, self._options.bad_rows)

    def _add(self, shard: "_OpenShard", parcel: Parcel, encoded: Encoded, tokens: int) -> None:
        shard.add(encoded)
        self.noted += map(str, encoded.bad[: _NOTED_ROWS - len(self.noted)])
        self.encoded_bytes += encoded.text_bytes
        if self._watch:
            progress = BuildProgress(
                file=parcel.files[-1],
                offset=parcel.chunks[-1].offset,
                text_bytes=self.encoded_bytes,
                tokens=tokens + shard.num_tokens,
            )
            self._watch(progress)


class _OpenShard:
    """A shard and its bad rows, under temporary names until they are published."""

    def __init__(
        self, journal: Journal, number: int, start: CorpusPosition, dtype: str, policy: BadRowPolicy
    ) -> None:
        self._journal, self._number, self._start = journal, number, start
        self._bad = BadRows(policy, journal.quarantine(number))
        name = shard_name(number)
        self._files = {
            array_name: _GrowingArray(journal.folder / f"{name}.{array_name}.tmp", array_dtype)
            for array_name, array_dtype in zip(PARTS, (dtype, "uint64", "uint64"), strict=True)
        }
        self._files["sentences"].append(np.zeros(1))
        # first sentence and file of the document that is open
        self._document: tuple[int, int] | None = None
        self._finished = False
        self.num_documents = self.num_sentences = self.num_tokens = 0
        self._counts: Counter[str] = Counter()
        self._documents_by_file: Counter[int] = Counter()

    def add(self, encoded: Encoded) -> None:
        """Write a parcel; a joined document continues the one that is open."""
        for row in encoded.bad:
            self._bad.add(row.location, row.reason, row.data)
        self._files["tokens"].append(encoded.tokens)
        self._files["sentences"].append(self.num_tokens + np.cumsum(encoded.sentence_lengths))
        at = self.num_sentences
        rows = zip(
            encoded.document_lengths, encoded.document_joined, encoded.document_files, strict=True
        )
        for length, joined, file in rows:
            if not joined or self._document is None:
                self._end_document(at)
                self._document = (at, int(file))
            at += int(length)
        self.num_sentences = at
        self.num_tokens += len(encoded.tokens)
        self._counts["text_bytes"] += encoded.text_bytes
        self._counts["unknown"] += encoded.num_unknown
        self._counts["cut_lines"] += encoded.num_cut_lines
        self._counts["bad_rows"] += len(encoded.bad)

    def _end_document(self, at: int) -> None:
        # one without a sentence leaves no trace
        if self._document is not None and self._document[0] < at:
            start, file = self._document
            self._files["documents"].append(np.array([start]))
            self._documents_by_file[file] += 1
            self.num_documents += 1

    def finish(self, end: CorpusPosition) -> Record:
        """Publish the shard, unless it has no token; its record."""
        self._bad.close()
        if not self.num_tokens:
            return self._record(end, {})
        self._end_document(self.num_sentences)
        self._files["documents"].append(np.array([self.num_sentences]))
        digests = {}
        for array_name, file in self._files.items():
            file.close()
            digests[array_name] = sha256(file.path)
        record = self._record(end, digests)
        for array_name, file in self._files.items():
            publish(file.path, self._journal.out / f"{record['name']}.{array_name}.npy")
        self._journal.write(self._number, record)
        self._finished = True
        return record

    def _record(self, end: CorpusPosition, digests: dict[str, str]) -> Record:
        """The shard's entry in the index."""
        counts = ("unknown", "text_bytes", "cut_lines", "bad_rows")
        by_file = {str(file): count for file, count in sorted(self._documents_by_file.items())}
        return {
            "name": shard_name(self._number),
            "documents": self.num_documents,
            "sentences": self.num_sentences,
            "tokens": self.num_tokens,
            **{key: self._counts[key] for key in counts},
            "documents_by_file": by_file,
            "sha256": digests,
            "start": list(self._start),
            "end": list(end),
            "quarantined": self._bad.count if self._bad.policy == "quarantine" else 0,
        }

    def abandon(self) -> None:
        """Remove the temporary files, unless the shard is published."""
        if not self._finished:
            for file in self._files.values():
                file.abandon()
            self._bad.close(failed=True)


class _GrowingArray:
    """A one-dimensional .npy file of unknown length: its header is written last, in place."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.path = path
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._length = 0
        self._file = path.open("wb")
        self._file.write(self._header())

    def append(self, values: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self._length += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._file.write(self._header())
        self._file.close()

    def abandon(self) -> None:
        with suppress(OSError):  # a full disk, which does not take what waits
            self._file.close()
        self.path.unlink(missing_ok=True)

    def _header(self) -> bytes:
        fields = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._length,),
        }
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, fields)
        assert buffer.tell() == _HEADER_BYTES, "the header must have the same size for every length"
        return buffer.getvalue()
