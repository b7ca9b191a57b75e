"""Splits of own files: which file is train, dev or test; and a split cut in two.

A cut is a pure function of the examples and a seed. Examples that share something, a title or a
text, stay on one side, so that nothing is both trained on and scored.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from litebert.errors import DataError
from litebert.tasks.examples import Kind, TagExample, TaskExample, TextExample
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.rows import FORMATS, TABLES, compression_of

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
) -> tuple[list[TaskExample], list[TaskExample]]:
    """(the rest, about `fraction`), each in the order of `examples`; neither is empty if there are
    two groups.

    `group` names what examples may share; those that share a name, directly or through others, stay
    together. Groups are taken in the order of a seeded hash while they fit.
    """
    shared = [group(example) for example in examples]
    groups = _components(shared)
    sizes = Counter(groups)
    ranks: dict[int, bytes] = {}
    for number, texts in zip(groups, shared, strict=True):
        text = "\0".join((str(seed), *texts)).encode(errors="surrogatepass")
        ranks[number] = min(hashlib.sha256(text).digest(), ranks.get(number, b"\xff" * 32))
    wanted, taken, count = max(round(fraction * len(examples)), 1), set[int](), 0
    order = sorted(sizes, key=lambda number: (ranks[number], number))
    for number in order:
        if count + sizes[number] <= wanted:
            taken.add(number)
            count += sizes[number]
    if not taken and len(order) > 1:  # every group is too large: the smallest then
        taken.add(min(order, key=lambda number: sizes[number]))
    sides: tuple[list[TaskExample], list[TaskExample]] = ([], [])
    for number, example in zip(groups, examples, strict=True):
        sides[number in taken].append(example)
    return sides


def cut_missing(
    splits: dict[str, Sequence[TaskExample]], in_files: Sequence[str], options: TableOptions
) -> list[str]:
    """Cut test and dev, where no file is given for them, from train; returns notes."""
    notes = []
    size = len(splits.get("train", ()))
    for split, fraction in (("test", options.test_fraction), ("dev", options.dev_fraction)):
        if split in in_files or not fraction or not size:
            continue
        train = splits["train"]
        rest, taken = cut(train, fraction * size / len(train), _texts, seed=options.cut_seed)
        if not taken or not rest:
            raise DataError(
                f"train has {size} rows, too few different ones to cut {fraction:.0%} off for "
                f"{split}; give a file for {split}"
            )
        splits["train"], splits[split] = rest, taken
        notes.append(
            f"{split} is {len(taken):,} of the {size:,} rows, cut from train (seed "
            f"{options.cut_seed})"
        )
    return notes


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
