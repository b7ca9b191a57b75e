"""Splits of own files: which file is train, dev or test; and a split cut in two.

A cut is a pure function of the examples and a seed. Examples that share something, a title or a
text, stay on one side, so that nothing is both trained on and scored.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from litebert.data.unpack import compression_of
from litebert.errors import DataError
from litebert.tasks.examples import Kind, TagExample, TaskExample, TextExample
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.rows import FORMATS, TABLES

STEMS = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
"""Names of each split's file."""


def find_splits(kind: Kind, data: Path) -> dict[str, list[Path]]:
    """The files of each split; a single file is train."""
    if data.is_file():
        if not _is_table(kind, data):
            also = ", or .json in SQuAD's layout" if kind == "answer" else ""
            raise DataError(
                f"{data}: the name does not say what table it is; expected {TABLES}{also}"
            )
        return {"train": [data]}
    splits: dict[str, list[Path]] = {}
    for split, stems in STEMS.items():
        paths = sorted(
            path
            for path in data.iterdir()
            if path.name.lower().split(".", 1)[0] in stems and _is_table(kind, path)
        )
        if len(paths) > 1:
            raise DataError(
                f"{data} holds {' and '.join(path.name for path in paths)}; which of them is "
                f"{split}? Keep one"
            )
        # train-00000-of-00002.parquet, as large tables are stored
        shards = sorted(
            path for stem in stems for path in data.glob(f"{stem}-*") if _is_table(kind, path)
        )
        if paths or shards:
            splits[split] = paths or shards
    if not splits:
        raise DataError(
            f"{data} holds no train, dev or test file; expected train.csv, dev.csv, … ({TABLES})"
        )
    return splits


def cut(
    examples: Sequence[TaskExample],
    fraction: float,
    group: Callable[[TaskExample], tuple[str, ...]],
    *,
    seed: int,
    strata: Sequence[str] | None = None,
) -> tuple[list[TaskExample], list[TaskExample]]:
    """(the rest, about `fraction`), each in the order of `examples`; neither is empty if there are
    two groups.

    `group` names what examples may share; those that share a name, directly or through others, stay
    together. With `strata`, such as the examples' labels, about `fraction` of each stratum is
    taken, and never its last group. Groups are taken in the order of a seeded hash while they fit.
    """
    shared = [group(example) for example in examples]
    groups = _components(shared)
    sizes = Counter(groups)
    ranks: dict[int, bytes] = {}
    stratum_of: dict[int, str] = {}
    for number, texts, stratum in zip(groups, shared, strata or [""] * len(shared), strict=True):
        text = "\0".join((str(seed), *texts)).encode(errors="surrogatepass")
        ranks[number] = min(hashlib.sha256(text).digest(), ranks.get(number, b"\xff" * 32))
        stratum_of[number] = min(stratum, stratum_of.get(number, stratum))
    order = sorted(sizes, key=lambda number: (ranks[number], number))
    left = _quotas(sizes, stratum_of, fraction)
    remaining = Counter(stratum_of.values())
    taken = set[int]()
    for number in order:
        stratum = stratum_of[number]
        if sizes[number] <= left[stratum] and remaining[stratum] > 1:
            taken.add(number)
            left[stratum] -= sizes[number]
            remaining[stratum] -= 1
    if not taken and len(order) > 1:  # every group is too large: the smallest then
        taken.add(min(order, key=lambda number: sizes[number]))
    sides: tuple[list[TaskExample], list[TaskExample]] = ([], [])
    for number, example in zip(groups, examples, strict=True):
        sides[number in taken].append(example)
    return sides


def _quotas(
    sizes: Mapping[int, int], stratum_of: Mapping[int, str], fraction: float
) -> dict[str, int]:
    """How many examples to take of each stratum: its share of the total, rounded by the largest
    remainder, so that the total is as if nothing were stratified."""
    totals = Counter[str]()
    for number, size in sizes.items():
        totals[stratum_of[number]] += size
    quotas = {stratum: math.floor(fraction * total) for stratum, total in totals.items()}
    missing = max(round(fraction * totals.total()), 1) - sum(quotas.values())
    by_remainder = sorted(
        totals, key=lambda stratum: (quotas[stratum] - fraction * totals[stratum], stratum)
    )
    for stratum in by_remainder[: max(missing, 0)]:
        quotas[stratum] += 1
    return quotas


def cut_missing(
    splits: dict[str, Sequence[TaskExample]], in_files: Sequence[str], options: TableOptions
) -> tuple[list[str], bool]:
    """Cut test and dev, where no file is given for them, from train; returns notes, and whether
    labels had a say in it."""
    notes = []
    size = len(splits.get("train", ()))
    is_stratified = False
    for split, fraction in (("test", options.test_fraction), ("dev", options.dev_fraction)):
        if split in in_files or not fraction or not size:
            continue
        train = splits["train"]
        strata = _strata(train) if options.stratify else None
        rest, taken = cut(
            train, fraction * size / len(train), _texts, seed=options.cut_seed, strata=strata
        )
        if not taken or not rest:
            raise DataError(
                f"train has {size} rows, too few different ones to cut {fraction:.0%} off for "
                f"{split}; give a file for {split}"
            )
        splits["train"], splits[split] = rest, taken
        how = ", with its share of every label" if strata else ""
        notes.append(
            f"{split} is {len(taken):,} of the {size:,} rows, cut from train{how} (seed "
            f"{options.cut_seed})"
        )
        is_stratified |= strata is not None
    return notes, is_stratified


def _strata(examples: Sequence[TaskExample]) -> list[str] | None:
    """The label of each example, of several the rarest; None where the task has no labels."""
    texts = [example for example in examples if isinstance(example, TextExample)]
    if len(texts) < len(examples) or any(isinstance(each.label, float) for each in texts):
        return None
    counts = Counter(label for example in texts for label in example.labels())
    return [
        min(example.labels(), key=lambda label: (counts[label], label), default="")
        for example in texts
    ]


def overlap_notes(splits: Mapping[str, Sequence[TaskExample]]) -> list[str]:
    """A note for each split that shares texts with train: its score is too good."""
    trained = {text for example in splits.get("train", ()) for text in _texts(example)}
    notes = []
    for split in ("dev", "test"):
        count = sum(not trained.isdisjoint(_texts(example)) for example in splits.get(split, ()))
        if count and trained:
            notes.append(
                f"{count:,} of {len(splits[split]):,} examples of {split} have their text in "
                "train, too"
            )
    return notes


def _is_table(kind: Kind, path: Path) -> bool:
    suffix = compression_of(path)[1]
    return path.is_file() and (
        FORMATS.get(suffix, "text") != "text" or (kind == "answer" and suffix == ".json")
    )


def _texts(example: TaskExample) -> tuple[str, ...]:
    """Rows with the same texts stay together, whatever their labels; questions by their context."""
    if isinstance(example, TextExample):
        return ("\0".join((example.first, example.second or "")),)
    if isinstance(example, TagExample):
        return ("\0".join(example.words),)
    return (example.context or example.question,)


def _components(shared: Sequence[tuple[str, ...]]) -> list[int]:
    """For each example the number of its group: the first example that it is joined with."""
    parent = list(range(len(shared)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    owner: dict[str, int] = {}
    for number, texts in enumerate(shared):
        for text in texts:
            if text:
                one, other = root(owner.setdefault(text, number)), root(number)
                parent[max(one, other)] = min(one, other)
    return [root(number) for number in range(len(shared))]
