"""Lines of raw text in, a tokenizer and a report on held-out lines out.

The defaults are the flags of the paper's vocabulary: 30,000 unigram tokens, learned on cleaned
text. (ALBERT §4.1)
"""

import contextlib
import ctypes
import io
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sentencepiece

from litebert.errors import ConfigError, DataError, LitebertError
from litebert.text.normalize import TextRules, clean
from litebert.text.tokenizer import Tokenizer
from litebert.text.vocabulary import MAX_TOKENS, SPACE

# Each thread sums its own share of the counts, so their number decides how sums are rounded, and
# with it the model's bytes. It is fixed, whatever the machine has, so that the same text gives the
# same bytes everywhere.
_THREADS = 16
_LINE_BYTES = 4000  # SentencePiece silently leaves out longer lines
_LINES_LEAST = 101  # of a choice, for SentencePiece; a corpus may have fewer
_LINES_A_STAGE, _STAGE_SECONDS = 10_000, 1.0
_HELD_OUT_EVERY, _HELD_OUT_MOST = 100, 10_000


@dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """What to learn. The defaults are the paper's."""

    vocab_size: int = 30_000
    """Number of tokens, special tokens included."""
    character_coverage: float = 0.99995
    """Share of the text's characters that become tokens; the rarest of the others are unknown."""
    symbols: tuple[str, ...] = ("(", ")", '"', "-", ".", "–", "£", "€")
    """Always tokens of their own, and never part of another."""
    max_lines: int = 10_000_000
    """Lines learned from; of a larger corpus, a random choice. Each needs memory."""
    seed: int = 0
    """Of that choice."""
    rules: TextRules = field(default_factory=TextRules)
    """The clean-up, before learning and for ever after."""

    def __post_init__(self) -> None:
        if self.vocab_size > MAX_TOKENS:
            raise ConfigError(f"vocab_size is at most {MAX_TOKENS:,}; got {self.vocab_size:,}")
        if self.vocab_size < 6 + len(self.symbols):
            raise ConfigError(
                f"vocab_size is {self.vocab_size}, but the special tokens and symbols alone need "
                "more; raise it"
            )
        if not 0.5 < self.character_coverage <= 1:
            raise ConfigError(
                f"character_coverage is {self.character_coverage}, expected a share above 0.5 and "
                "up to 1"
            )
        if self.max_lines < _LINES_LEAST or self.seed < 0:
            raise ConfigError(
                f"max_lines is {self.max_lines} and seed {self.seed}, expected at least "
                f"{_LINES_LEAST} and 0"
            )


@dataclass(frozen=True, kw_only=True)
class VocabularyReport:
    """How well the vocabulary fits held-out text."""

    vocab_size: int
    num_lines: int
    """Lines to learn from, before any random choice."""
    num_held_out: int
    """Lines measured on and not learned from; 0 where a corpus of few is measured on itself."""
    coverage: float
    """Share of characters, spaces aside, that are not part of an unknown token."""
    tokens_per_word: float
    unknown_rate: float
    """Share of tokens that are unknown."""


def train_tokenizer(
    lines: Iterable[str],
    config: VocabularyConfig | None = None,
    *,
    on_progress: Callable[[str], None] = lambda stage: None,
) -> tuple[Tokenizer, VocabularyReport]:
    """Learn a vocabulary from lines, read once and never held; every hundredth is kept for the
    report. `on_progress` receives the stage, about once a second."""
    config = config or VocabularyConfig()
    feed = _Feed(lines, config.rules)
    model = _train(feed, config, on_progress)
    tokenizer = Tokenizer(model, config.rules, source="the new vocabulary")
    sample, num_held_out = feed.held_out or feed.first, len(feed.held_out)
    report = measure(tokenizer, sample, num_lines=feed.num_lines, num_held_out=num_held_out)
    return tokenizer, report


def measure(
    tokenizer: Tokenizer, lines: list[str], *, num_lines: int = 0, num_held_out: int = 0
) -> VocabularyReport:
    """Coverage, tokens per word and unknown rate of a tokenizer on some lines."""
    num_words = num_tokens = num_unknown = num_chars = unknown_chars = 0
    for line, tokens in zip(lines, tokenizer.encode_with_offsets(lines), strict=True):
        num_words += len(line.split())
        num_chars += sum(map(len, line.split()))
        num_tokens += len(tokens.ids)
        unknown = [index for index, token in enumerate(tokens.ids) if token == tokenizer.unk_id]
        num_unknown += len(unknown)
        unknown_chars += int((tokens.offsets[unknown, 1] - tokens.offsets[unknown, 0]).sum())
    return VocabularyReport(
        vocab_size=tokenizer.vocab_size,
        num_lines=num_lines,
        num_held_out=num_held_out,
        coverage=1 - unknown_chars / max(num_chars, 1),
        tokens_per_word=num_tokens / max(num_words, 1),
        unknown_rate=num_unknown / max(num_tokens, 1),
    )


class _Feed:
    """Cleaned lines for SentencePiece, less those held out."""

    def __init__(self, lines: Iterable[str], rules: TextRules) -> None:
        self.held_out: list[str] = []
        self.first: list[str] = []
        self.num_lines = 0
        self._lines = lines
        self._rules = rules

    def __iter__(self) -> Iterator[str]:
        for index, line in enumerate(self._lines):
            is_last = index % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1
            if is_last and len(self.held_out) < _HELD_OUT_MOST:
                self.held_out.append(line)
                continue
            if len(self.first) < _HELD_OUT_EVERY:
                self.first.append(line)
            self.num_lines += 1
            # A NUL would end the line early, and ▁ is SentencePiece's own sign.
            yield from _cut(clean(line, self._rules).replace("\0", " ").replace(SPACE, " "))


def _cut(line: str) -> Iterator[str]:
    """A long line in parts that end at a space: no text is lost to SentencePiece's limit."""
    at = 0
    while len(line[at : at + _LINE_BYTES + 1].encode()) > _LINE_BYTES:
        end = line.rfind(" ", at, at + _LINE_BYTES // 4)
        end = end if end > at else at + _LINE_BYTES // 4
        yield line[at:end]
        at = end
        while line[at : at + 1].isspace():
            at += 1
    if at < len(line):
        yield line[at:]


def _train(feed: _Feed, config: VocabularyConfig, on_progress: Callable[[str], None]) -> bytes:
    """SentencePiece's model, trained in a process of its own: its minutes in C++ leave Python's
    signal handlers no turn, and this process can be interrupted while it waits."""
    settings = {
        "seed": config.seed,
        "vocab_size": config.vocab_size,
        "character_coverage": config.character_coverage,
        "user_defined_symbols": list(config.symbols),
        "input_sentence_size": config.max_lines,
    }
    code = f"from {__name__} import _run_worker; _run_worker()"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,  # Ctrl-C at the terminal is for the parent alone
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.write(json.dumps(settings).encode() + b"\n")
                for number, line in enumerate(feed):
                    worker.stdin.write(line.encode() + b"\n")
                    if number % _LINES_A_STAGE == 0:
                        on_progress(f"reading, {feed.num_lines:,} lines")
                worker.stdin.close()
            while not select.select([worker.stdout], [], [], _STAGE_SECONDS)[0]:
                on_progress(f"learning from {min(feed.num_lines, config.max_lines):,} lines")
            answer = worker.stdout.read()
        finally:
            worker.kill()  # before its input ends, or it would train on a part
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.close()
    if answer[:1] == _MODEL:
        return answer[1:]
    if answer[:1] == _ERROR:
        raise _explain(answer[1:].decode(errors="replace"), config)
    raise LitebertError(
        f"the process that trains the vocabulary ended with code {worker.returncode}, often for "
        "want of memory; train on fewer lines (--max-lines)"
    )


_MODEL, _ERROR = b"M", b"E"
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


def _run_worker() -> None:
    """The process that trains: settings and lines in, model or error out. It ends with its
    parent."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    first = sys.stdin.buffer.readline()
    if not first:  # the parent was interrupted before it sent anything
        return
    settings = json.loads(first)
    try:
        answer = _MODEL + _learn(settings)
    except RuntimeError as error:
        answer = _ERROR + str(error).encode()
    sys.stdout.buffer.write(answer)
    sys.stdout.flush()


def _learn(settings: dict[str, Any]) -> bytes:
    model = io.BytesIO()
    lines = _sample(sys.stdin.buffer, settings["input_sentence_size"], settings.pop("seed"))
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=(line[:-1].decode() for line in lines),
        model_writer=model,
        model_type="unigram",
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        shuffle_input_sentence=True,
        num_threads=_THREADS,
        minloglevel=2,
        **settings,
    )
    return model.getvalue()


def _sample(lines: Iterable[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Of more than `count` lines a random sample, else all in order. SentencePiece's own sample
    follows no seed: it differs from process to process (0.2.2)."""
    draw = random.Random(seed)
    chosen: list[bytes] = []
    for number, line in enumerate(lines):
        if number < count:
            chosen.append(line)
        elif (at := draw.randrange(number + 1)) < count:
            chosen[at] = line
    chosen.reverse()
    while chosen:  # SentencePiece copies each line, so none is held twice
        yield chosen.pop()


def _explain(message: str, config: VocabularyConfig) -> DataError:
    if match := re.search(r"too high.*<= (\d+)", message):
        return DataError(
            f"the corpus yields at most {match[1]} tokens, {config.vocab_size} were requested; "
            f"give more text, or a vocab size of at most {match[1]}"
        )
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return DataError(
            f"the corpus has so many characters that the vocabulary needs at least {match[1]} "
            f"tokens, {config.vocab_size} were requested; raise the vocab size, or lower the "
            "character coverage"
        )
    if "sentences_.empty()" in message:
        return DataError("the corpus has no text to learn a vocabulary from; check its path")
    return DataError(f"SentencePiece could not learn a vocabulary: {message.strip()}")
