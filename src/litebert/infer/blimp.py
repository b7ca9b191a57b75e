"""Minimal pairs: which of two sentences a model finds likelier, by pseudo-log-likelihood.

BLiMP (Warstadt et al. 2020) has 67 paradigms of 1,000 pairs, in 12 terms of linguistics, as one
JSONL file each. The pseudo-log-likelihood of a sentence (Salazar et al. 2020) is the sum of the
log-probabilities of its tokens, each predicted where it alone is masked. A pair is correct where
the acceptable sentence has the higher sum; sums are not divided by lengths. No torch: the engine
computes.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from litebert.checks import list_names
from litebert.data.bad_rows import BadRows, Location
from litebert.data.unpack import compression_of
from litebert.errors import ConfigError, DataError
from litebert.tasks.scores.score import wilson
from litebert.tasks.tables.rows import FORMATS, read_rows

if TYPE_CHECKING:
    from litebert.infer.torch_engine import TorchEngine

PAIRS = 128
"""Pairs whose masked copies are collected before they are sorted by length and computed."""
_COLUMNS = {
    "good": ("sentence_good", "good"),
    "bad": ("sentence_bad", "bad"),
    "paradigm": ("UID", "paradigm"),
    "term": ("linguistics_term", "term"),
    "field": ("field",),
}


class _Pair(NamedTuple):
    """Two sentences that differ in one point of grammar."""

    good: str
    bad: str
    paradigm: str
    term: str
    field: str


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The share of pairs that are correct; for several paradigms the mean of theirs."""

    accuracy: float
    interval: tuple[float, float]
    """Wilson's 95 % interval; of a mean, with the number of pairs whose variance it has."""
    num_pairs: int


@dataclass(frozen=True, kw_only=True)
class BlimpScores:
    """Accuracies on minimal pairs; chance is 0.5."""

    overall: Accuracy
    fields: dict[str, Accuracy]
    """Syntax, semantics, morphology …"""
    terms: dict[str, Accuracy]
    """The phenomena: island effects, anaphor agreement …"""
    paradigms: dict[str, Accuracy]
    within_word: bool
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For --json."""

        def plain(group: Mapping[str, Accuracy]) -> dict[str, Any]:
            return {name: _to_dict(each) for name, each in group.items()}

        return {
            "task": "blimp",
            "overall": _to_dict(self.overall),
            "fields": plain(self.fields),
            "terms": plain(self.terms),
            "paradigms": plain(self.paradigms),
            "within_word": self.within_word,
        }


def _to_dict(each: Accuracy) -> dict[str, Any]:
    return {
        "accuracy": each.accuracy,
        "interval": list(each.interval),
        "num_pairs": each.num_pairs,
    }


def score_blimp(
    engine: "TorchEngine",
    data: str | os.PathLike[str],
    *,
    limit: int | None = None,
    within_word: bool = False,
    bad_rows: Literal["error", "skip"] = "error",
    on_progress: Callable[[int], None] = lambda pairs: None,
) -> BlimpScores:
    """Scores of the engine's model on a folder (or one file) of minimal pairs; `limit`: the first
    pairs of each paradigm. `within_word`: see `pseudo_log_likelihoods`. `on_progress` is called
    with the number of pairs that are done."""
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is at least 1; got {limit}")
    bad = BadRows(bad_rows, alternatives="skip")
    correct: dict[str, list[bool]] = {}
    groups: dict[str, tuple[str, str]] = {}
    done, left = 0, _limited(_read_pairs(data, bad), limit)
    while pairs := list(islice(left, PAIRS)):
        texts = [text for pair in pairs for text in (pair.good, pair.bad)]
        sums = pseudo_log_likelihoods(engine, texts, within_word=within_word)
        for pair, is_correct in zip(pairs, (sums[::2] > sums[1::2]).tolist(), strict=True):
            correct.setdefault(pair.paradigm, []).append(is_correct)
            groups[pair.paradigm] = (pair.field, pair.term)
        done += len(pairs)
        on_progress(done)
    if not correct:
        raise DataError(f"{data} holds no minimal pair; give the folder of BLiMP's JSONL files")

    def by(index: int) -> dict[str, Accuracy]:
        names = sorted({group[index] for group in groups.values()})
        return {
            name: mean_accuracy([correct[p] for p in correct if groups[p][index] == name])
            for name in names
        }

    return BlimpScores(
        overall=mean_accuracy(list(correct.values())),
        fields=by(0),
        terms=by(1),
        paradigms={name: mean_accuracy([correct[name]]) for name in sorted(correct)},
        within_word=within_word,
        notes=bad.notes,
    )


def _read_pairs(data: str | os.PathLike[str], bad: BadRows | None = None) -> Iterator[_Pair]:
    """The pairs of all files of a folder, or of one file, in the order of their names. Columns are
    those of BLiMP, or good, bad, paradigm, term and field."""
    path, bad = Path(data), bad or BadRows(alternatives="skip")
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if compression_of(file)[1] in FORMATS)
    if not files or not path.exists():
        raise DataError(
            f"there are no minimal pairs in {path}; give the folder of BLiMP's JSONL files"
        )
    for file in files:
        default = file.name.partition(".")[0]
        for location, row in read_rows(file, bad=bad):
            pair = _pair(row, default, location, bad)
            if pair is not None:
                yield pair


def _pair(row: Mapping[str, Any], default: str, location: Location, bad: BadRows) -> _Pair | None:
    cells = {
        name: next((row[column] for column in columns if row.get(column)), "")
        for name, columns in _COLUMNS.items()
    }
    for name in ("good", "bad"):
        if not isinstance(cells[name], str) or not cells[name].strip():
            columns = list_names(sorted(row)) or "none"
            wanted = " or ".join(_COLUMNS[name])
            bad.add(location, f"there is no text in {wanted}; the columns are {columns}", str(row))
            return None
    return _Pair(
        good=cells["good"],
        bad=cells["bad"],
        paradigm=str(cells["paradigm"] or default),
        term=str(cells["term"] or "other"),
        field=str(cells["field"] or "other"),
    )


def _limited(pairs: Iterator[_Pair], limit: int | None) -> Iterator[_Pair]:
    seen: dict[str, int] = {}
    for pair in pairs:
        seen[pair.paradigm] = seen.get(pair.paradigm, 0) + 1
        if limit is None or seen[pair.paradigm] <= limit:
            yield pair


def pseudo_log_likelihoods(
    engine: "TorchEngine", texts: Sequence[str], *, within_word: bool = False
) -> Float[np.ndarray, " texts"]:
    """For each text the sum of the log-probabilities of its tokens, each predicted where it is
    masked. `within_word` masks the later tokens of its word as well, so that a word of several
    tokens is not given away by its end (PLL-word-l2r, Kauf & Ivanova 2023)."""
    tokenizer = engine.tokenizer
    rows, columns, labels, owners = [], [], [], []
    examples = tokenizer.pairs(texts, max_length=engine.config.encoder.max_positions)
    for number, example in enumerate(examples):
        ids = np.array(example.token_ids, np.int64)
        size = len(ids) - 2  # without [CLS] and [SEP]
        here = np.arange(1, size + 1)
        masked = np.eye(len(ids), dtype=bool)[here]
        if within_word:
            words = np.cumsum(tokenizer.word_starts[ids])  # [SEP] begins one of its own
            masked |= (words == words[here, None]) & (np.arange(len(ids)) > here[:, None])
        rows += list(np.where(masked, tokenizer.mask_id, ids))
        columns.append(here)
        labels.append(ids[here])
        owners.append(np.full(size, number))
    sums = np.zeros(len(texts))
    if rows:
        losses = engine.token_losses(rows, np.concatenate(columns), np.concatenate(labels))
        np.subtract.at(sums, np.concatenate(owners), losses)
    return sums


def mean_accuracy(paradigms: Sequence[Sequence[bool]]) -> Accuracy:
    """The mean over paradigms of the share that is correct, each paradigm counting alike."""
    shares = np.array([np.mean(each) for each in paradigms])
    sizes = np.array([len(each) for each in paradigms])
    mean, num = float(shares.mean()), float(sizes.sum())
    variance = float((shares * (1 - shares) / sizes).sum()) / len(shares) ** 2
    if variance:
        num = mean * (1 - mean) / variance
    return Accuracy(accuracy=mean, interval=wilson(mean, num), num_pairs=int(sizes.sum()))
