"""Encoded parcels in order become one shard: three .npy files that grow on the disk, not in memory.
 In: Encoded. Out: NNNNN.tokens.npy, NNNNN.sentences.npy, NNNNN.documents.npy, published together,
and the shard's record for the index. (The layout: docs/data.md.)
"""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from litebert.data.encode import Encoded
from litebert.files import publish, sha256

PARTS = ("tokens", "sentences", "documents")
HEADER_BYTES = 128


class ShardWriter:
    """One shard being written in `folder`, under temporary names."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self.name = name
        dtypes = {"tokens": dtype, "sentences": "uint64", "documents": "uint64"}
        self._files = {
            part: _GrowingArray(folder / f"{name}.{part}.tmp", dtypes[part]) for part in PARTS
        }
        self._files["sentences"].append(np.zeros(1))
        self._document: tuple[int, int] | None = (
            None  # first sentence and file of the document that is open
        )
        self.num_documents = self.num_sentences = self.num_tokens = 0
        self.counts: Counter[str] = Counter()
        self._documents_by_file: Counter[int] = Counter()

    def add(self, encoded: Encoded) -> None:
        """Write what a parcel holds; a joined document goes on with the one that is open."""
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
        self.counts["text_bytes"] += encoded.text_bytes
        self.counts["unknown"] += encoded.num_unknown
        self.counts["cut_lines"] += encoded.num_cut_lines
        self.counts["bad_rows"] += len(encoded.bad)

    def _end_document(self, at: int) -> None:
        if (
            self._document is not None and self._document[0] < at
        ):  # one without a sentence leaves no trace
            start, file = self._document
            self._files["documents"].append(np.array([start]))
            self._documents_by_file[file] += 1
            self.num_documents += 1

    def finish(self, folder: Path) -> dict[str, Any]:
        """Publish the shard in `folder`; its record."""
        self._end_document(self.num_sentences)
        self._files["documents"].append(np.array([self.num_sentences]))
        digests = {}
        for part, file in self._files.items():
            file.close()
            digests[part] = sha256(file.path)
        for part, file in self._files.items():
            publish(file.path, folder / f"{self.name}.{part}.npy")
        return self.record(digests)

    def record(self, digests: dict[str, str]) -> dict[str, Any]:
        """What the index says about the shard."""
        return {
            "name": self.name,
            "documents": self.num_documents,
            "sentences": self.num_sentences,
            "tokens": self.num_tokens,
            **{key: self.counts[key] for key in ("unknown", "text_bytes", "cut_lines", "bad_rows")},
            "documents_by_file": {
                str(file): count for file, count in sorted(self._documents_by_file.items())
            },
            "sha256": digests,
        }

    def abandon(self) -> None:
        """Leave nothing behind."""
        for file in self._files.values():
            file.abandon()


class _GrowingArray:
    """A one-dimensional .npy file whose length is known only at the end: its header is written
    last, in place."""

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
        assert buffer.tell() == HEADER_BYTES, "the header must have the same size for every length"
        return buffer.getvalue()
