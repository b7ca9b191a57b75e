"""Texts in, token ids out, and back: SentencePiece with ALBERT's clean-up and special tokens.

A tokenizer lives in a folder: spiece.model (the vocabulary), tokenizer_config.json (the clean-up's
switches) and tokenizer.json (the same, for Hugging Face). The model file alone will do, with the
switches of ALBERT. (ALBERT §4.1)
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from litebert.checks import shorten
from litebert.errors import DataError
from litebert.files import (
    MAX_JSON_BYTES,
    check_local,
    check_regular,
    publish,
    remove_leftovers,
    temporary_path,
    write_file,
)
from litebert.packing import Truncate, assemble, truncated_lengths
from litebert.shapes import Bool
from litebert.text import huggingface, vocabulary
from litebert.text.normalize import TextRules, clean, clean_for_ids
from litebert.text.offsets import Aligner
from litebert.text.vocabulary import SPACE, Bounds, Ids, Offsets, damaged, describe

MODEL_FILE = "spiece.model"
CONFIG_FILE = "tokenizer_config.json"
JSON_FILE = "tokenizer.json"
FILES = (MODEL_FILE, CONFIG_FILE, JSON_FILE)
# texts at a time: few enough that their ids are still cached when they are read again
_CHUNK = 1024
_FEW_CHARACTERS = 2000
"""Of all texts of a call: tokenized in a fraction of a millisecond."""
_MAX_MODEL_BYTES = 64 * 2**20
"""Of spiece.model; that of ALBERT has 760 kB."""
_NOWHERE: Offsets = np.zeros((1, 2), dtype=np.int32)


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """One text as tokens."""

    ids: list[int]
    offsets: Offsets
    """For each token where it starts and ends in the raw text, in characters."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One input of the model, without padding."""

    token_ids: list[int]
    segment_ids: list[int]
    """0 for the first text and its special tokens, 1 for the second."""
    offsets: Offsets | None = None
    """Where each token stands in its own raw text, in characters; (0, 0) for special tokens."""


class Tokenizer:
    """A vocabulary with its rules. Safe to share between threads."""

    def __init__(
        self, model: bytes, rules: TextRules | None = None, *, source: str = "the model"
    ) -> None:
        """From the bytes of a SentencePiece model; `source` names them in errors."""
        self.rules = rules or TextRules()
        self.model = model
        self.description = describe(model, source)
        if self.description.kind != "unigram":
            raise DataError(
                f"{source} is a {self.description.kind} model, litebert reads plain unigram "
                "models; train one with `litebert tokenizer train`"
            )
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
            self.vocab_size: int = self._processor.GetPieceSize()
            self.tokens = [self._processor.IdToPiece(index) for index in range(self.vocab_size)]
            """The text of every token, by id; ▁ stands for the space before a word."""
        except (RuntimeError, OSError, ValueError) as error:
            raise damaged(source, str(error).partition("\n")[0]) from None
        ids = vocabulary.special_ids(self._processor, source)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = ids
        self.special_ids = frozenset(ids)
        self.splits: dict[int, list[int]] = {}
        """For each id that is never given out, the ids that replace it."""
        if self.rules.split_digit_commas:
            self.splits = vocabulary.digit_comma_splits(self._processor, self.tokens)
        self._splits = vocabulary.Splits(self.splits, self.vocab_size)
        spaces = self._processor.Normalize("a\tb\nc\fd\re  f ")
        collapses = spaces.removeprefix(SPACE) == SPACE.join("abcdef")
        self._is_fast = collapses and replace(self.rules, split_digit_commas=True) == TextRules()

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Load a tokenizer's folder, or a SentencePiece model file on its own."""
        path = Path(path)
        file = path / MODEL_FILE if path.is_dir() else path
        try:
            if check_regular(file) > _MAX_MODEL_BYTES:
                raise damaged(str(file), f"it is larger than {_MAX_MODEL_BYTES} bytes")
            model = file.read_bytes()
        except OSError as error:
            raise DataError(
                f"no tokenizer at {path}: expected {MODEL_FILE} in a folder, or a SentencePiece "
                f"model file ({error.strerror}); "
                "give another path, or train one with `litebert tokenizer train`"
            ) from None
        rules = _read_rules(file.parent / CONFIG_FILE) if path.is_dir() else None
        return cls(model, rules, source=str(file))

    def save(self, folder: str | Path, *, for_huggingface: bool = True) -> None:
        """Write spiece.model, tokenizer_config.json and, which is the largest and follows from
        them, tokenizer.json."""
        folder = make_folder(folder)
        if (folder / MODEL_FILE).exists() and _replace(
            folder, lambda new: self.save(new, for_huggingface=for_huggingface)
        ):
            return
        try:
            if for_huggingface:
                text = huggingface.dumps(huggingface.tokenizer_json(self))
                write_file(folder / JSON_FILE, text)
            config = huggingface.dumps(huggingface.tokenizer_config(self))
            write_file(folder / CONFIG_FILE, config)
            # last, since it makes the folder a tokenizer
            write_file(folder / MODEL_FILE, self.model)
        except OSError as error:
            raise _not_written(folder, error) from None

    @cached_property
    def scores(self) -> list[float]:
        """The log-probability of every token, by id."""
        return [self._processor.GetScore(i) for i in range(self.vocab_size)]

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 of the model's bytes, and of rules that are not ALBERT's."""
        digest = hashlib.sha256(self.model)
        if self.rules != TextRules():
            rules = asdict(self.rules)
            if not rules[
                "dotless_i"
            ]:  # as before it was there: shards name their tokenizer by this
                del rules["dotless_i"]
            digest.update(json.dumps(rules, sort_keys=True).encode())
        return digest.hexdigest()

    @cached_property
    def word_starts(self) -> Bool[np.ndarray, " vocab"]:
        """By id: whether a token begins a word, by the reference's rule; special ones do."""
        starts = np.array([vocabulary.starts_word(token) for token in self.tokens])
        starts[list(self.special_ids)] = True
        return starts

    @cached_property
    def _aligner(self) -> Aligner:
        return Aligner(self._processor, self.tokens, self.unk_id, self.rules)

    def normalized(self, cleaned: str) -> str:
        """A cleaned text after SentencePiece's own normalizer: what the tokens partition."""
        return str(self._processor.Normalize(cleaned))

    def encode(self, text: str) -> list[int]:
        """The token ids of one text, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of many texts, without special tokens."""
        rows: list[list[int]] = []
        for start in range(0, len(texts), _CHUNK):
            cleaned = self._cleaned(texts[start : start + _CHUNK])
            chunk: list[list[int]] = self._encoded(cleaned, out_type=int)
            self._splits.apply_to_lists(chunk)
            rows += chunk
        return rows

    def encode_flat(self, texts: Sequence[str], *, num_threads: int = 1) -> tuple[Ids, Bounds]:
        """As `encode_batch`, in one array: text i has ids[bounds[i] : bounds[i + 1]]. The
        fastest."""
        if not texts:
            return np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
        arrays = self._encoded(self._cleaned(texts), num_threads, return_type="numpy")
        return self._splits.apply(np.concatenate(arrays), np.cumsum([0, *map(len, arrays)]))

    def _encoded(self, cleaned: Sequence[Any], num_threads: int = 1, **form: Any) -> list[Any]:
        """What SentencePiece makes of each text. Of a list it makes it in a thread of its own, so
        that other threads of Python run meanwhile; to start one takes longer than a few words."""
        if num_threads == 1 and sum(map(len, cleaned)) <= _FEW_CHARACTERS:
            return [self._processor.Encode(each, **form) for each in cleaned]
        encoded: list[Any] = self._processor.Encode(list(cleaned), num_threads=num_threads, **form)
        return encoded

    def _cleaned(self, texts: Sequence[str]) -> list[Any]:
        # of str and bytes, which SentencePiece takes mixed
        if self._is_fast:
            return [clean_for_ids(text) for text in texts]
        return [clean(text, self.rules) for text in texts]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[Tokens]:
        """The token ids of many texts, each with its place in the raw text, without the space
        before it; a lone ▁ has an empty place before the next token. Dropped marks belong to the
        character before them; where one character becomes several tokens ("½"), all have its
        place."""
        tokens: list[Tokens] = []
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            ids, bounds = self.encode_flat(chunk)
            places = self._aligner.offsets(chunk, ids, bounds)
            tokens += [
                Tokens(ids=row, offsets=spans)
                for row, spans in zip(_rows(ids, bounds), places, strict=True)
            ]
        return tokens

    def encode_behind(self, stand_in: str, text: str) -> list[int]:
        """The token ids of a text that stands directly behind a character which no token contains:
        whether it starts a word depends on the space between them."""
        cleaned = clean(stand_in + text, self.rules)
        tokens: list[str] = self._processor.Encode(cleaned, out_type=str)
        prefix: str = self._processor.Normalize("a").removesuffix("a")
        # the tokens partition the normalized text; an unknown one may reach into `text`
        ends = np.cumsum([len(token) for token in tokens])
        ids = np.array(self._processor.Encode(cleaned), np.int64)
        row: list[int] = ids[ends > len(prefix) + len(stand_in)].tolist()
        self._splits.apply_to_lists([row])
        return row

    def pair(
        self,
        a: str,
        b: str | None = None,
        *,
        max_length: int | None = None,
        truncate: Truncate = "error",
        offsets: bool = False,
    ) -> Example:
        """[CLS] a [SEP] or [CLS] a [SEP] b [SEP], cut to `max_length` as `Truncate` says."""
        seconds = None if b is None else [b]
        return self.pairs([a], seconds, max_length=max_length, truncate=truncate, offsets=offsets)[
            0
        ]

    def pairs(
        self,
        firsts: Sequence[str],
        seconds: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        truncate: Truncate = "error",
        offsets: bool = False,
    ) -> list[Example]:
        """`pair` for many texts at once."""
        tokens_a = self._tokens(firsts, offsets)
        tokens_b: Sequence[Tokens | None] = [None] * len(tokens_a)
        lengths_a, lengths_b = np.array([len(text.ids) for text in tokens_a], np.int64), None
        if seconds is not None:
            tokens_b = second_tokens = self._tokens(seconds, offsets)
            lengths_b = np.array([len(text.ids) for text in second_tokens], np.int64)
        sizes = truncated_lengths(lengths_a, lengths_b, max_length=max_length, truncate=truncate)
        rows = zip(tokens_a, tokens_b, *map(list, sizes), strict=True)
        return [self._example(a, b, size_a, size_b, offsets) for a, b, size_a, size_b in rows]

    def _example(
        self, a: Tokens, b: Tokens | None, size_a: int, size_b: int, offsets: bool
    ) -> Example:
        second = None if b is None else b.ids[:size_b]
        token_ids, segment_ids = assemble(
            a.ids[:size_a], second, cls_id=self.cls_id, sep_id=self.sep_id
        )
        spans = [_NOWHERE, a.offsets[:size_a], _NOWHERE]
        if b is not None:
            spans += [b.offsets[:size_b], _NOWHERE]
        places = np.concatenate(spans) if offsets else None
        return Example(token_ids=token_ids, segment_ids=segment_ids, offsets=places)

    def _tokens(self, texts: Sequence[str], offsets: bool) -> list[Tokens]:
        if offsets:
            return self.encode_with_offsets(texts)
        nowhere = np.zeros((0, 2), dtype=np.int32)
        return [Tokens(ids=ids, offsets=nowhere) for ids in self.encode_batch(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        """The cleaned text of token ids; special tokens are left out, an unknown token reads ⁇."""
        skipped = self.special_ids - {self.unk_id}
        wrong = next((i for i in ids if not 0 <= i < self.vocab_size), None)
        if wrong is not None:
            raise DataError(
                f"token id {wrong} is outside of the vocabulary of {self.vocab_size} tokens"
            )
        text: str = self._processor.Decode([int(i) for i in ids if i not in skipped])
        return text


def make_folder(folder: str | Path) -> Path:
    """Make a tokenizer's folder; long work asks for it before it begins."""
    folder = Path(folder)
    check_local(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # an old folder may be read-only
            pass
    except OSError as error:
        raise _not_written(folder, error) from None
    return folder


def _replace(folder: Path, write: Callable[[Path], None]) -> bool:
    """Exchange a tokenizer's folder for one with the files that `write` writes and all others of
    the old one, in one step; False where the folder cannot be renamed. The others stay the files
    that they are, for whoever has them open."""
    target = folder.resolve()
    if target == Path.cwd() or not all(path.is_file() for path in target.iterdir()):
        return False
    remove_leftovers(target.parent, target.name)
    temporary = temporary_path(target)
    try:
        temporary.mkdir()
        write(temporary)
        for path in target.iterdir():
            if path.name not in FILES:
                os.link(path, temporary / path.name, follow_symlinks=False)
        shutil.copymode(target, temporary)
        publish(temporary, target)
    except OSError:  # a mount point, or a parent folder that is not ours: file by file instead
        return False
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def _not_written(folder: Path, error: OSError) -> DataError:
    return DataError(
        f"the tokenizer cannot be written to {folder} ({error.strerror}); give another folder, or "
        "make room"
    )


def _read_rules(file: Path) -> TextRules:
    if not file.exists():
        return TextRules()
    try:
        if check_regular(file) > MAX_JSON_BYTES:
            raise ValueError(f"it is larger than {MAX_JSON_BYTES} bytes")
        config = json.loads(file.read_text(encoding="utf-8"))
        chosen = huggingface.rules_in(config)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{file} cannot be read ({error}); expected a JSON object, mend or delete it"
        ) from None
    for field in fields(TextRules):
        if not isinstance(chosen.get(field.name, True), bool):
            raise DataError(
                f"{file}: {field.name} is {shorten(chosen[field.name])}, expected true or false"
            )
    return TextRules(**chosen)


def _rows(ids: Ids, bounds: Bounds) -> list[list[int]]:
    return [ids[start:end].tolist() for start, end in pairwise(bounds.tolist())]
