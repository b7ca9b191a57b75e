"""Parcels of chunks become arrays of token ids: the work that is done in parallel.

In: a Parcel, some chunks of one file or of several small ones. Out: Encoded, its token ids with the
lengths of sentences and documents, and its bad rows. Pure, given a ParcelEncoder, so that any
process on any machine may do it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int, UInt

from litebert.data.bad_rows import BadRow
from litebert.data.chunks import Chunk, CorpusFile
from litebert.data.corpus import CorpusOptions, Document
from litebert.packing import row_bounds
from litebert.text.normalize import TextRules
from litebert.text.sentence_words import sentence_words
from litebert.text.sentences import RULES_VERSION, split_sentences
from litebert.text.tokenizer import Tokenizer

_BATCH_PARAGRAPHS = 8192
"""Encoded at once: few enough that their tokens stay in the processor's cache."""

CorpusPosition = tuple[int, int]
"""A place in the corpus between two chunks: number of the file, number of the chunk in it."""


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """The unit of work: consecutive chunks, about as many bytes as one has."""

    start: CorpusPosition
    chunks: list[Chunk]
    files: list[int]
    """The number of each chunk's file."""


def parcels(
    files: list[CorpusFile], options: CorpusOptions, start: CorpusPosition = (0, 0)
) -> Iterator[Parcel]:
    """The corpus from `start` on, where a parcel ended; the others end as they would have."""
    chunks: list[Chunk] = []
    numbers: list[int] = []
    size = 0
    first = start
    for number in range(start[0], len(files)):
        for chunk in options.chunks(files[number]):
            position = (number, chunk.number)
            if position < start:  # a compressed file can only be read from its beginning
                continue
            if not chunks:
                first = position
            chunks.append(chunk)
            numbers.append(number)
            size += chunk.size
            if size >= options.chunk_bytes // 2:
                yield Parcel(start=first, chunks=chunks, files=numbers)
                chunks, numbers, size = [], [], 0
    if chunks:
        yield Parcel(start=first, chunks=chunks, files=numbers)


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """A parcel in numbers."""

    tokens: UInt[np.ndarray, " tokens"]
    sentence_lengths: Int[np.ndarray, " sentences"]
    """Tokens in each sentence; never 0."""
    document_lengths: Int[np.ndarray, " documents"]
    """Sentences in each document; may be 0."""
    document_joined: Bool[np.ndarray, " documents"]
    """Whether it continues the document before."""
    document_files: Int[np.ndarray, " documents"]
    """The number of its file."""
    text_bytes: int
    num_unknown: int
    num_cut_lines: int
    """Lines that were longer than a chunk, each cut counted."""
    bad: list[BadRow] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class EncoderRecipe:
    """All that a process needs to encode; small enough to send."""

    model: bytes
    rules: TextRules
    options: CorpusOptions
    split: Literal["rules", "lines"]
    """Sentences by the rules, or each line is one, as in the reference's input."""

    @property
    def sentences(self) -> str:
        """Name of the way of splitting; changes with the rules."""
        return f"rules-{RULES_VERSION}" if self.split == "rules" else "lines"


class ParcelEncoder:
    """Encodes parcels; holds a tokenizer."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        tokenizer = Tokenizer(recipe.model, recipe.rules)
        self._encode_sentences = _SentenceEncoder(tokenizer, split=recipe.split == "rules")
        self._read = recipe.options.read
        self._unk_id = tokenizer.unk_id
        self._dtype = token_dtype(tokenizer.vocab_size)

    def __call__(self, parcel: Parcel) -> Encoded:
        documents: list[Document] = []
        files: list[int] = []
        bad: list[BadRow] = []
        for chunk, number in zip(parcel.chunks, parcel.files, strict=True):
            read, bad_rows = self._read(chunk)
            documents += read
            files += [number] * len(read)
            bad += bad_rows
        tokens, sentence_lengths, sentences = self._encode(
            [text for each in documents for text in each.paragraphs]
        )
        paragraphs = np.fromiter(
            (len(each.paragraphs) for each in documents), np.int64, len(documents)
        )
        owners = np.repeat(np.repeat(np.arange(len(documents)), paragraphs), sentences)
        is_filled = sentence_lengths > 0
        return Encoded(
            tokens=tokens,
            sentence_lengths=sentence_lengths[is_filled],
            document_lengths=np.bincount(owners[is_filled], minlength=len(documents)),
            document_joined=np.array([each.joined for each in documents], dtype=bool),
            document_files=np.array(files, dtype=np.int64),
            text_bytes=sum(chunk.size for chunk in parcel.chunks),
            num_unknown=int(np.count_nonzero(tokens == self._unk_id)),
            num_cut_lines=sum(chunk.cut for chunk in parcel.chunks),
            bad=bad,
        )

    def _encode(self, paragraphs: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens of all, tokens of each sentence, sentences of each paragraph."""
        parts = [
            self._encode_sentences(paragraphs[at : at + _BATCH_PARAGRAPHS])
            for at in range(0, max(len(paragraphs), 1), _BATCH_PARAGRAPHS)
        ]
        tokens, lengths, sentences = zip(*parts, strict=True)
        return (
            np.concatenate(tokens, dtype=self._dtype, casting="unsafe"),
            np.concatenate(lengths),
            np.concatenate(sentences),
        )


def token_dtype(vocab_size: int) -> str:
    """The smallest type that holds every token id: token_dtype(30000) -> "uint16"."""
    return "uint16" if vocab_size <= 2**16 else "uint32"


class _SentenceEncoder:
    """Paragraphs in, token ids and the length of each sentence out. A paragraph is encoded whole,
    which is faster: no token reaches over a space, so a sentence has as many tokens that begin with
    ▁ as it has words. Where the words do not come out even (scripts without spaces, other white
    space), the paragraph's sentences are encoded one by one. With `split` False each paragraph is
    one."""

    def __init__(self, tokenizer: Tokenizer, *, split: bool) -> None:
        self._encode = tokenizer.encode_flat
        self._split = split
        self._begins_word = np.array([token.startswith("▁") for token in tokenizer.tokens])

    def __call__(
        self, paragraphs: list[str]
    ) -> tuple[
        Int[np.ndarray, " tokens"], Int[np.ndarray, " sentences"], Int[np.ndarray, " paragraphs"]
    ]:
        """Token ids, tokens of each sentence (0 for one without), sentences of each paragraph."""
        ids, bounds = self._encode(paragraphs)
        if not self._split:
            return ids, np.diff(bounds), np.ones(len(paragraphs), dtype=np.int64)
        num_sentences, words, regular = sentence_words(paragraphs)
        num_words = np.diff(row_bounds(self._begins_word[ids].view(np.int8))[bounds])
        is_single = num_sentences == 1  # then all words are the one sentence's
        firsts = row_bounds(num_sentences)
        words[firsts[:-1][is_single]] = num_words[is_single]
        even = is_single | (regular & (np.diff(row_bounds(words)[firsts]) == num_words))
        if even.all():
            return ids, self._lengths(ids, words), num_sentences

        # Both kinds are encoded apart and put together again in their places.
        ids = ids[np.repeat(even, np.diff(bounds))]
        of_even = np.repeat(even, num_sentences)
        others = (split_sentences(paragraphs[number]) for number in np.flatnonzero(~even))
        other_ids, other_bounds = self._encode(
            [sentence for sentences in others for sentence in sentences]
        )
        lengths = np.empty(len(words), dtype=np.int64)
        lengths[of_even], lengths[~of_even] = (
            self._lengths(ids, words[of_even]),
            np.diff(other_bounds),
        )
        is_even = np.repeat(of_even, lengths)
        merged = np.empty(len(is_even), dtype=ids.dtype)
        merged[is_even], merged[~is_even] = ids, other_ids
        return merged, lengths, num_sentences

    def _lengths(self, ids: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Tokens of each sentence, out of its words."""
        starts = np.append(np.flatnonzero(self._begins_word[ids]), len(ids))
        return np.diff(starts[row_bounds(words)])
