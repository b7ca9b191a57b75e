"""Parcels of pieces become arrays of token ids: the work that is done in parallel.

In: a Parcel, some pieces of one file or of several small ones. Out: Encoded, its token ids with the bounds of sentences
and documents, and what was wrong with it. Pure, given an Encoder, so that any process on any machine may do it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int, UInt

from litebert.data.corpus import BadRow, CorpusFile, CorpusOptions, Piece
from litebert.text.normalize import TextRules
from litebert.text.sentences import RULES_VERSION, split_sentences
from litebert.text.tokenizer import Tokenizer

BATCH_SENTENCES = 2048
"""Encoded at once: few enough that their tokens stay in the processor's cache."""

Position = tuple[int, int]
"""A place in the corpus between two pieces: number of the file, number of the piece in it."""


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """The unit of work: consecutive pieces that make up the bytes of one, or a little more."""

    start: Position
    pieces: list[Piece]
    files: list[int]
    """The number of each piece's file."""


def parcels(files: list[CorpusFile], options: CorpusOptions, start: Position = (0, 0)) -> Iterator[Parcel]:
    """The corpus from `start` on. Where parcels end does not depend on where among their ends one starts."""
    pieces: list[Piece] = []
    numbers: list[int] = []
    size = 0
    first = start
    for number in range(start[0], len(files)):
        for piece in options.pieces(files[number]):
            if (number, piece.number) < start:  # a compressed file can only be read from its beginning
                continue
            if not pieces:
                first = (number, piece.number)
            pieces.append(piece)
            numbers.append(number)
            size += piece.size
            if size >= options.piece_bytes // 2:
                yield Parcel(start=first, pieces=pieces, files=numbers)
                pieces, numbers, size = [], [], 0
    if pieces:
        yield Parcel(start=first, pieces=pieces, files=numbers)


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """A parcel in numbers."""

    tokens: UInt[np.ndarray, " tokens"]
    sentence_lengths: Int[np.ndarray, " sentences"]
    """Tokens in each sentence; never 0."""
    document_lengths: Int[np.ndarray, " documents"]
    """Sentences in each document; may be 0."""
    document_joined: Bool[np.ndarray, " documents"]
    """Whether it is a further part of the document before."""
    document_files: Int[np.ndarray, " documents"]
    """The number of its file."""
    text_bytes: int
    num_unknown: int
    num_cut_lines: int
    """Lines that were longer than a piece, each cut counted."""
    bad: list[BadRow] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class EncoderRecipe:
    """All that a process needs to know to encode; small enough to send."""

    model: bytes
    rules: TextRules
    options: CorpusOptions
    split: Literal["rules", "lines"]
    """How a paragraph becomes sentences: by the rules, or each line is one, as in the reference's input."""

    @property
    def sentences(self) -> str:
        """The way of splitting, by a name that changes with the rules."""
        return f"rules-{RULES_VERSION}" if self.split == "rules" else "lines"


class Encoder:
    """Encodes parcels; holds a tokenizer."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        self._tokenizer = Tokenizer(recipe.model, recipe.rules)
        self._read = recipe.options.read
        self._split = recipe.split == "rules"
        self._dtype = token_dtype(self._tokenizer.vocab_size)

    def __call__(self, parcel: Parcel) -> Encoded:
        sentences: list[str] = []
        lengths: list[int] = []
        joined: list[bool] = []
        files: list[int] = []
        bad: list[BadRow] = []
        for piece, number in zip(parcel.pieces, parcel.files, strict=True):
            documents, wrong = self._read(piece)
            bad += wrong
            for document in documents:
                before = len(sentences)
                if self._split:
                    for paragraph in document.paragraphs:
                        sentences += split_sentences(paragraph)
                else:
                    sentences += document.paragraphs
                lengths.append(len(sentences) - before)
                joined.append(document.joined)
                files.append(number)
        tokens, sentence_lengths, num_unknown = self._encode(sentences)
        return Encoded(
            tokens=tokens,
            sentence_lengths=sentence_lengths[sentence_lengths > 0],
            document_lengths=_without_empty(np.array(lengths, dtype=np.int64), sentence_lengths),
            document_joined=np.array(joined, dtype=bool),
            document_files=np.array(files, dtype=np.int64),
            text_bytes=sum(piece.size for piece in parcel.pieces),
            num_unknown=num_unknown,
            num_cut_lines=sum(piece.cut for piece in parcel.pieces),
            bad=bad,
        )

    def _encode(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray, int]:
        parts = [np.zeros(0, dtype=self._dtype)]
        lengths = [np.zeros(0, dtype=np.int64)]
        num_unknown = 0
        for batch in _batches(sentences):
            ids, bounds = self._tokenizer.encode_flat(batch)
            num_unknown += int(np.count_nonzero(ids == self._tokenizer.unk_id))
            parts.append(ids.astype(self._dtype))
            lengths.append(np.diff(bounds))
        return np.concatenate(parts), np.concatenate(lengths), num_unknown


def token_dtype(vocab_size: int) -> str:
    """The smallest type that holds every token id: token_dtype(30000) -> "uint16"."""
    return "uint16" if vocab_size <= 2**16 else "uint32"


def _batches(sentences: list[str]) -> Iterable[list[str]]:
    return (sentences[at : at + BATCH_SENTENCES] for at in range(0, len(sentences), BATCH_SENTENCES))


def _without_empty(lengths: np.ndarray, sentence_lengths: np.ndarray) -> np.ndarray:
    """Sentences of each document, without those of which the clean-up left nothing."""
    if sentence_lengths.all():
        return lengths
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(owner[sentence_lengths > 0], minlength=len(lengths))
