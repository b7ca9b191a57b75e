"""Tokens with their structure, over all shards. In: shards. Out: where a text may be cut, and the
tokens of any span.

Places are counted over the whole corpus, so that the size of the shards changes no example.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from litebert.data.shards import Shard

_BEYOND = np.iinfo(np.int64).max
PIECES = 8
"""A sentence longer than a whole example is taken as pieces of at most this part of an example."""


class Boundaries:
    """The places in a shard where a segment may begin or end: sentence starts, and cuts inside
    overlong sentences."""

    def __init__(self, sentences: Int[np.ndarray, " sentences"], max_text: int) -> None:
        self.sentences = sentences
        sizes = np.diff(sentences)
        long = np.flatnonzero(sizes > max_text)
        self.num_long = len(long)
        piece = max(1, max_text // PIECES)
        spans = [np.arange(sentences[s] + piece, sentences[s + 1], piece) for s in long]
        self.cuts: Int[np.ndarray, " cuts"] = np.concatenate([np.zeros(0, np.int64), *spans])

    def at_or_after(self, places: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        found = _first(self.sentences, places)
        return np.minimum(found, _first(self.cuts, places)) if self.cuts.size else found

    def before(self, places: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The last boundary strictly before each place (places are after the first)."""
        found = self.sentences[np.searchsorted(self.sentences, places) - 1]
        if self.cuts.size:
            index = np.searchsorted(self.cuts, places) - 1
            found = np.maximum(found, np.where(index >= 0, self.cuts[np.maximum(index, 0)], -1))
        return found


def _first(
    boundaries: Int[np.ndarray, " m"], places: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """The first boundary at or after each place; beyond the last, the largest number there is."""
    index = np.searchsorted(boundaries, places)
    found = boundaries[np.minimum(index, len(boundaries) - 1)]
    return np.where(index < len(boundaries), found, _BEYOND)


@dataclass(frozen=True, kw_only=True, eq=False)
class Text:
    """One shard, ready for cutting: its arrays as signed integers, its place in the corpus, its
    boundaries."""

    tokens: Int[np.ndarray, " tokens"]
    sentences: Int[np.ndarray, " sentences"]
    """Where each sentence begins in tokens; the last entry is the end."""
    documents: Int[np.ndarray, " documents"]
    """Where each document begins in sentences; the last entry is the end."""
    first_token: int
    """Tokens in the shards before."""
    first_document: int
    """Documents in the shards before."""
    max_text: int
    """Tokens above which a sentence is taken as pieces."""

    @cached_property
    def boundaries(self) -> Boundaries:
        return Boundaries(self.sentences, self.max_text)


class Texts:
    """All shards of a corpus as one text."""

    def __init__(self, shards: Sequence[Shard], max_text: int) -> None:
        self.parts: list[Text] = []
        self.num_tokens = self.num_documents = 0
        for shard in shards:
            part = Text(
                tokens=np.asarray(
                    shard.tokens
                ),  # still mapped, but sliced ten times faster than a memmap
                sentences=np.asarray(shard.sentences).view(
                    np.int64
                ),  # numpy compares int64 with uint64 as floats
                documents=np.asarray(shard.documents).view(np.int64),
                first_token=self.num_tokens,
                first_document=self.num_documents,
                max_text=max_text,
            )
            self.parts.append(part)
            self.num_tokens += len(part.tokens)
            self.num_documents += len(part.documents) - 1
        self._firsts = np.array([part.first_token for part in self.parts], np.int64)

    def part_of(self, places: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The shard that each token of the corpus is in."""
        return np.searchsorted(self._firsts, places, side="right") - 1

    def documents_of(self, places: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """The document, numbered over the corpus, that each token belongs to."""
        found = np.zeros_like(places)
        for part, chosen in self.grouped(places):
            sentence = (
                np.searchsorted(part.sentences, places[chosen] - part.first_token, side="right") - 1
            )
            found[chosen] = (
                np.searchsorted(part.documents, sentence, side="right") - 1 + part.first_document
            )
        return found

    def grouped(self, places: Int[np.ndarray, " n"]) -> list[tuple[Text, Int[np.ndarray, " m"]]]:
        """Each shard that some place is in, with which places these are."""
        owners = self.part_of(places)
        return [(self.parts[owner], np.flatnonzero(owners == owner)) for owner in np.unique(owners)]

    def copy(
        self,
        starts: Int[np.ndarray, " n"],
        sizes: Int[np.ndarray, " n"],
        out: Int[np.ndarray, "n seq"],
        columns: Int[np.ndarray, " n"],
    ) -> None:
        """Write the tokens of each span into its row of `out`, from its column on."""
        owners = self.part_of(starts)
        sources = [self.parts[owner].tokens for owner in owners.tolist()]
        first = starts - self._firsts[owners]
        to = np.arange(len(starts)) * out.shape[1] + columns
        flat = out.reshape(-1)
        spans = (first, first + sizes, to, to + sizes)
        for source, low, high, begin, end in zip(
            sources, *(span.tolist() for span in spans), strict=True
        ):
            flat[begin:end] = source[low:high]
