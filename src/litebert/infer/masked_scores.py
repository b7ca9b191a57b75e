"""How well a model predicts masked tokens of a text: loss, accuracy and perplexity with intervals,
beside a unigram model (BERT §3.1, ALBERT §4.1). No torch: the engine computes.

The text becomes shards in a temporary folder and then the examples that pretraining's held-out
evaluation would make of them, so that both agree, and memory does not grow with the text. A folder
of shards is read as it is.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from litebert.checks import shorten
from litebert.data.batch import Batch
from litebert.data.build import BuildOptions, build_shards
from litebert.data.corpus import CorpusOptions
from litebert.data.shards import INDEX_FILE, Shards
from litebert.data.spec import ExampleSpec, Split
from litebert.data.stream import Stream
from litebert.errors import ConfigError, DataError
from litebert.recipes.pretrain import Order

if TYPE_CHECKING:
    from litebert.infer.torch_engine import TorchEngine

LONGEST = 128
"""Default length of an example in tokens, as in pretraining."""
_COUNTED = 1 << 20
"""Tokens that are counted at a time."""
_Z = 1.959964
"""Half the width of a 95 % interval, in standard errors."""


@dataclass(frozen=True, kw_only=True)
class MaskedOptions:
    """How a text becomes masked examples. The defaults mask as pretraining does."""

    max_length: int | None = None
    """Tokens in an example, at most, with [CLS] and [SEP]; by default 128, or what the model
    reads."""
    tokens: int | None = None
    """Evaluate examples of about this many tokens, drawn from all over the text; by default all."""
    mask_fraction: float = 0.15
    """Fraction of an example's tokens to mask."""
    mask_units: Literal["words", "tokens"] = "words"
    """Mask whole words, or single tokens, which are easier to predict where others of the word are
    left."""
    max_ngram: int = 3
    """Longest run of words (or tokens) masked together; length n is drawn in proportion to 1/n."""
    order: Order = "none"
    """Segments of an example: none, as they stand in the text; sop swaps half of the pairs, nsp
    takes half of the second ones from other documents, as in pretraining."""
    seed: int = 0
    """Seed of cuts and masks; the held-out evaluation of pretraining has 0."""
    split: Split = "all"
    """Documents to evaluate: all, or heldout or train of the shards of a run."""
    heldout_fraction: float = 0.01
    """Fraction of the documents that is held out, as in the run."""
    field: str = "text"
    """Field of a .jsonl row, or column of a .parquet file, that holds the text."""
    documents: Literal["blank-lines", "files"] = "blank-lines"
    """What ends a document of a text file: a blank line, or only the end of the file."""
    bad_rows: Literal["error", "skip"] = "error"
    """What to do with a row without usable text: stop, or skip it."""

    def __post_init__(self) -> None:
        if self.tokens is not None and self.tokens < 1:
            raise ConfigError(f"tokens is at least 1; got {self.tokens}")
        if self.mask_units not in ("words", "tokens"):
            raise ConfigError(f"mask_units is words or tokens; got {shorten(self.mask_units)}")


@dataclass(frozen=True, kw_only=True)
class TokenScores:
    """Of predicted tokens."""

    loss: float
    """Mean cross-entropy in nats."""
    accuracy: float

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))


@dataclass(frozen=True, kw_only=True)
class MaskedScores:
    """What a model is worth on the masked tokens of a text."""

    model: TokenScores
    unigram: TokenScores
    """Of a model that knows how frequent each token is in this text, and nothing else: its loss,
    and the accuracy of the most frequent token."""
    intervals: dict[str, tuple[float, float]]
    """95 % intervals of the model's loss, accuracy and perplexity: what other documents of this
    kind might give. Empty for a single document."""
    num_documents: int
    num_examples: int
    num_tokens: int
    num_masked: int
    options: MaskedOptions
    """With the length that was used."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        scores = {
            name: asdict(each) | {"perplexity": each.perplexity}
            for name, each in (("model", self.model), ("unigram", self.unigram))
        }
        return {
            "task": "masked",
            "scores": scores["model"],
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            "baselines": {"unigram": scores["unigram"]},
            "num_documents": self.num_documents,
            "num_examples": self.num_examples,
            "num_tokens": self.num_tokens,
            "num_masked": self.num_masked,
            "options": asdict(self.options),
        }


def score_masked(
    engine: "TorchEngine",
    data: str | os.PathLike[str],
    options: MaskedOptions,
    *,
    on_progress: Callable[[float], None] = lambda share: None,
) -> MaskedScores:
    """Scores of the engine's model on `data`: files as `litebert data build` reads them, or a
    folder of shards. `on_progress` is called with the share that is done."""
    spec = _spec(options, engine.config.encoder.max_positions)
    with _shards(engine, data, options) as (folder, notes):
        stream = Stream.open(folder, spec, seed=options.seed, split=options.split)
        stream.folder = Path(data)  # what errors name
        if options.mask_units == "tokens":
            every = np.ones_like(stream.vocabulary.word_starts)
            stream.vocabulary = stream.vocabulary._replace(word_starts=every)
        return _score(engine, stream, options, notes, on_progress)


def _score(
    engine: "TorchEngine",
    stream: Stream,
    options: MaskedOptions,
    notes: tuple[str, ...],
    on_progress: Callable[[float], None],
) -> MaskedScores:
    length, texts = stream.spec.max_length, stream.texts
    count = stream.num_examples()
    if options.tokens is not None:
        count = min(count, max(options.tokens // length, 1))
    frequencies = _frequencies(stream)
    nats = -np.log(np.maximum(frequencies, 1) / frequencies.sum())
    by_document, unigram = np.zeros((texts.num_documents, 3)), np.zeros(2)
    num_tokens, done = 0, 0
    for batch in _batches(stream, count, rows=max(engine.batch_tokens // length, 1)):
        losses, correct = engine.masked_losses(batch)
        starts = stream.plan(0).starts[batch.indices]
        owners = texts.documents_of(starts)[batch.masked_positions // length]
        np.add.at(by_document, owners, np.stack([losses, correct, np.ones_like(losses)], 1))
        labels = batch.masked_labels
        unigram += nats[labels].sum(), np.count_nonzero(labels == frequencies.argmax())
        num_tokens, done = num_tokens + batch.num_tokens, done + len(batch)
        on_progress(done / count)
    by_document = by_document[by_document[:, 2] > 0]
    loss, hits, num_masked = by_document.sum(0).tolist()
    unigram_loss, unigram_hits = unigram.tolist()
    counts = by_document[:, 2]
    intervals = {}
    if len(by_document) > 1:
        low, high = ratio_interval(by_document[:, 0], counts)
        intervals["loss"] = (low, high)
        ends = ratio_interval(by_document[:, 1], counts)
        intervals["accuracy"] = (max(ends[0], 0.0), min(ends[1], 1.0))
        intervals["perplexity"] = (math.exp(min(low, 700.0)), math.exp(min(high, 700.0)))
    return MaskedScores(
        model=TokenScores(loss=loss / num_masked, accuracy=hits / num_masked),
        unigram=TokenScores(loss=unigram_loss / num_masked, accuracy=unigram_hits / num_masked),
        intervals=intervals,
        num_documents=len(by_document),
        num_examples=count,
        num_tokens=num_tokens,
        num_masked=int(num_masked),
        options=_with_length(options, length),
        notes=notes,
    )


def ratio_interval(
    sums: Float[np.ndarray, " documents"], counts: Float[np.ndarray, " documents"]
) -> tuple[float, float]:
    """A 95 % interval of sum(sums) / sum(counts) where whole documents are drawn: the standard
    error of a ratio estimate (Cochran, Sampling Techniques, §6.3)."""
    num, total = len(sums), counts.sum()
    ratio = sums.sum() / total
    spread = math.sqrt(num / (num - 1) * float(((sums - ratio * counts) ** 2).sum())) / total
    return float(ratio - _Z * spread), float(ratio + _Z * spread)


def _spec(options: MaskedOptions, longest: int) -> ExampleSpec:
    length = min(LONGEST, longest) if options.max_length is None else options.max_length
    if length > longest:
        raise ConfigError(f"max_length is {length}, the model reads at most {longest} tokens")
    return ExampleSpec(
        max_length=length,
        short_probability=0.0,
        order=options.order,
        mask_fraction=options.mask_fraction,
        max_ngram=options.max_ngram,
        heldout_fraction=options.heldout_fraction,
    )


def _with_length(options: MaskedOptions, length: int) -> MaskedOptions:
    return MaskedOptions(**(asdict(options) | {"max_length": length}))


@contextmanager
def _shards(
    engine: "TorchEngine", data: str | os.PathLike[str], options: MaskedOptions
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """A folder of shards in the model's vocabulary, and notes about how the text was read."""
    if (Path(data) / INDEX_FILE).is_file():
        if (
            Shards.open(Path(data), verify=True).tokenizer().fingerprint
            != engine.tokenizer.fingerprint
        ):
            raise DataError(
                f"the shards in {data} hold tokens of another vocabulary than the model's; give "
                "the text that they were built from"
            )
        yield Path(data), ()
        return
    reading = CorpusOptions(
        field=options.field, documents=options.documents, bad_rows=options.bad_rows
    )
    with TemporaryDirectory(prefix="litebert-") as temporary:
        tokenizer, out = Path(temporary) / "tokenizer", Path(temporary) / "shards"
        engine.tokenizer.save(tokenizer, for_huggingface=False)
        report = build_shards(
            [data],
            tokenizer=tokenizer,
            out=out,
            options=BuildOptions(corpus=reading, max_bad_rows=1),
        )
        notes = [f"skipped: {row}" for row in report.bad]
        if report.bad_rows > len(report.bad):
            notes.append(f"{report.bad_rows} bad rows were skipped")
        yield out, tuple(notes)


def _batches(stream: Stream, count: int, *, rows: int) -> Iterator[Batch]:
    for start in range(0, count, rows):
        yield stream.batch(0, start, min(rows, count - start))


def _frequencies(stream: Stream) -> Int[np.ndarray, " vocab"]:
    """How often each token of the vocabulary stands in the shards."""
    size = len(stream.vocabulary.word_starts)
    counts = np.zeros(size, np.int64)
    for shard in stream.shards:
        for start in range(0, len(shard.tokens), _COUNTED):
            counts += np.bincount(shard.tokens[start : start + _COUNTED], minlength=size)
    return counts
