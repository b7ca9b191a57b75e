"""The tokens of all shards as one text. In: shards. Out: where a text may be cut, and the tokens of
any span.

Positions count tokens of the corpus, so that the size of the shards changes no example.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int, UInt

from litebert.data.shards import Shard

Ints = Int[np.ndarray, " n"]
"""A number for each of some examples, tokens or documents."""
_BEYOND = np.iinfo(np.int64).max
_STRETCHES = 8
"""A sentence longer than an example is divided into stretches of this fraction of an example."""


class Boundaries:
    """Where a segment may begin or end: sentence starts, and cuts inside overlong sentences."""

    def __init__(self, sentences: Int[np.ndarray, " sentences"], max_text: int) -> None:
        self.sentences = sentences
        sizes = np.diff(sentences)
        long = np.flatnonzero(sizes > max_text)
        stretch = max(1, max_text // _STRETCHES)
        spans = [np.arange(sentences[s] + stretch, sentences[s + 1], stretch) for s in long]
        self.cuts: Int[np.ndarray, " cuts"] = np.concatenate([np.zeros(0, np.int64), *spans])

    def at_or_after(self, positions: Ints) -> Ints:
        boundary = _first(self.sentences, positions)
        return np.minimum(boundary, _first(self.cuts, positions)) if self.cuts.size else boundary

    def before(self, positions: Ints) -> Ints:
        """The last boundary strictly before each position (positions are after the first)."""
        boundary = self.sentences[np.searchsorted(self.sentences, positions) - 1]
        if self.cuts.size:
            index = np.searchsorted(self.cuts, positions) - 1
            inside = np.where(index >= 0, self.cuts[np.maximum(index, 0)], -1)
            boundary = np.maximum(boundary, inside)
        return boundary


def _first(boundaries: Int[np.ndarray, " m"], positions: Ints) -> Ints:
    """The first boundary at or after each position; the largest int64 beyond the last."""
    index = np.searchsorted(boundaries, positions)
    boundary = boundaries[np.minimum(index, len(boundaries) - 1)]
    return np.where(index < len(boundaries), boundary, _BEYOND)


@dataclass(frozen=True, kw_only=True, eq=False)
class Text:
    """One shard, ready for cutting."""

    tokens: UInt[np.ndarray, " tokens"]
    sentences: Int[np.ndarray, " sentences"]
    """Where each sentence begins in tokens; the last entry is the end."""
    documents: Int[np.ndarray, " documents"]
    """Where each document begins in sentences; the last entry is the end."""
    first_token: int
    """Tokens in the shards before."""
    first_document: int
    """Documents in the shards before."""
    max_text: int
    """Tokens above which a sentence is divided."""

    @cached_property
    def boundaries(self) -> Boundaries:
        return Boundaries(self.sentences, self.max_text)


class Texts:
    """All shards of a corpus as one text."""

    def __init__(self, shards: Sequence[Shard], max_text: int) -> None:
        self.shards: list[Text] = []
        self.num_tokens = self.num_documents = 0
        for shard in shards:
            text = Text(
                # still mapped, but sliced ten times faster than a memmap
                tokens=np.asarray(shard.tokens),
                # signed, since numpy compares int64 with uint64 as floats
                sentences=np.asarray(shard.sentences).view(np.int64),
                documents=np.asarray(shard.documents).view(np.int64),
                first_token=self.num_tokens,
                first_document=self.num_documents,
                max_text=max_text,
            )
            self.shards.append(text)
            self.num_tokens += len(text.tokens)
            self.num_documents += len(text.documents) - 1
        self._firsts = np.array([text.first_token for text in self.shards], np.int64)

    def _shard_of(self, positions: Ints) -> Ints:
        """The shard that each token of the corpus is in."""
        return np.searchsorted(self._firsts, positions, side="right") - 1

    def documents_of(self, positions: Ints) -> Ints:
        """The document, numbered over the corpus, that each token belongs to."""
        documents = np.zeros_like(positions)
        for shard, chosen in self.grouped(positions):
            local = positions[chosen] - shard.first_token
            sentence = np.searchsorted(shard.sentences, local, side="right") - 1
            number = np.searchsorted(shard.documents, sentence, side="right") - 1
            documents[chosen] = number + shard.first_document
        return documents

    def grouped(self, positions: Ints) -> list[tuple[Text, Int[np.ndarray, " _m"]]]:
        """The positions by shard: each shard that has some, with their indices."""
        owners = self._shard_of(positions)
        return [(self.shards[each], np.flatnonzero(owners == each)) for each in np.unique(owners)]

    def copy(self, starts: Ints, sizes: Ints, out: Int[np.ndarray, "n seq"], columns: Ints) -> None:
        """Write the tokens of each span into its row of `out`, from its column on."""
        owners = self._shard_of(starts)
        sources = [self.shards[owner].tokens for owner in owners.tolist()]
        first = starts - self._firsts[owners]
        to = np.arange(len(starts)) * out.shape[1] + columns
        flat = out.reshape(-1)
        spans = (first, first + sizes, to, to + sizes)
        for source, low, high, begin, end in zip(
            sources, *(span.tolist() for span in spans), strict=True
        ):
            flat[begin:end] = source[low:high]
