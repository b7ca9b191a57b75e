"""Parcels of pieces become arrays of token ids: the work that is done in parallel.
 In: a Parcel, some pieces of one file or of several small ones. Out: Encoded, its token ids with
the bounds of sentences and documents, and what was wrong with it. Pure, given an Encoder, so that
any process on any machine may do it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int, UInt

from litebert.data.corpus import BadRow, CorpusFile, CorpusOptions, Document, Piece
from litebert.data.sentence_tokens import SentenceEncoder
from litebert.text.normalize import TextRules
from litebert.text.sentences import RULES_VERSION
from litebert.text.tokenizer import Tokenizer

BATCH_PARAGRAPHS = 8192
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


def parcels(
    files: list[CorpusFile], options: CorpusOptions, start: Position = (0, 0)
) -> Iterator[Parcel]:
    """The corpus from `start` on. Where parcels end does not depend on where among their ends one
    starts."""
    pieces: list[Piece] = []
    numbers: list[int] = []
    size = 0
    first = start
    for number in range(start[0], len(files)):
        for piece in options.pieces(files[number]):
            if (
                number,
                piece.number,
            ) < start:  # a compressed file can only be read from its beginning
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
    """How a paragraph becomes sentences: by the rules, or each line is one, as in the reference's
    input."""

    @property
    def sentences(self) -> str:
        """The way of splitting, by a name that changes with the rules."""
        return f"rules-{RULES_VERSION}" if self.split == "rules" else "lines"


class Encoder:
    """Encodes parcels; holds a tokenizer."""

    def __init__(self, recipe: EncoderRecipe) -> None:
        tokenizer = Tokenizer(recipe.model, recipe.rules)
        self._encode_sentences = SentenceEncoder(tokenizer, split=recipe.split == "rules")
        self._read = recipe.options.read
        self._unk_id = tokenizer.unk_id
        self._dtype = token_dtype(tokenizer.vocab_size)

    def __call__(self, parcel: Parcel) -> Encoded:
        documents: list[Document] = []
        files: list[int] = []
        bad: list[BadRow] = []
        for piece, number in zip(parcel.pieces, parcel.files, strict=True):
            found, wrong = self._read(piece)
            documents += found
            files += [number] * len(found)
            bad += wrong
        tokens, sentence_lengths, sentences = self._encode(
            [text for each in documents for text in each.paragraphs]
        )
        paragraphs = np.fromiter(
            (len(each.paragraphs) for each in documents), np.int64, len(documents)
        )
        owners = np.repeat(np.repeat(np.arange(len(documents)), paragraphs), sentences)
        kept = sentence_lengths > 0
        return Encoded(
            tokens=tokens,
            sentence_lengths=sentence_lengths[kept],
            document_lengths=np.bincount(owners[kept], minlength=len(documents)),
            document_joined=np.array([each.joined for each in documents], dtype=bool),
            document_files=np.array(files, dtype=np.int64),
            text_bytes=sum(piece.size for piece in parcel.pieces),
            num_unknown=int(np.count_nonzero(tokens == self._unk_id)),
            num_cut_lines=sum(piece.cut for piece in parcel.pieces),
            bad=bad,
        )

    def _encode(self, paragraphs: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens of all, tokens of each sentence, sentences of each paragraph."""
        parts = [self._encode_sentences(batch) for batch in _batches(paragraphs)]
        if not parts:
            return (
                np.zeros(0, dtype=self._dtype),
                np.zeros(0, dtype=np.int64),
                np.zeros(0, dtype=np.int64),
            )
        tokens, lengths, sentences = zip(*parts, strict=True)
        return (
            np.concatenate(tokens, dtype=self._dtype, casting="unsafe"),
            np.concatenate(lengths),
            np.concatenate(sentences),
        )


def token_dtype(vocab_size: int) -> str:
    """The smallest type that holds every token id: token_dtype(30000) -> "uint16"."""
    return "uint16" if vocab_size <= 2**16 else "uint32"


def _batches(paragraphs: list[str]) -> Iterable[list[str]]:
    return (
        paragraphs[at : at + BATCH_PARAGRAPHS] for at in range(0, len(paragraphs), BATCH_PARAGRAPHS)
    )
