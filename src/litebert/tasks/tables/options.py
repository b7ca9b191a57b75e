"""How task files are to be read: which columns, what to do with bad rows, how splits are cut.
Frozen data."""

from dataclasses import dataclass
from typing import Literal

from litebert.checks import check_choice, check_number, check_whole
from litebert.errors import ConfigError

BadRowPolicy = Literal["error", "skip", "quarantine"]
Level = Literal["all", "middle", "high"]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Columns left at None are recognised by their names, and the choice is told in the notes."""

    text: str | None = None
    """Column of the text, or of a pair's first text."""
    second: str | None = None
    """Column of a pair's second text."""
    label: str | None = None
    """Column of the label; of the number for regress; of the right option for choose (a letter, a
    number from 0, or itself)."""
    context: str | None = None
    """Column of the context that a question is about: choose, answer."""
    question: str | None = None
    """Column of the question: choose, answer."""
    options: tuple[str, ...] | None = None
    """Columns of the options of choose: one for each, or a single one that holds a list."""
    answer: str | None = None
    """Column of the answer's text, or of SQuAD's answers object; empty where a question has
    none."""
    answer_start: str | None = None
    """Column of the answer's first character in the context; without it, the first place where the
    answer stands."""
    words: str | None = None
    """Column of the words to tag: a list, or a text with white space between."""
    tags: str | None = None
    """Column of the tags, as many as words."""
    slice: str | None = None
    """Column that scores are broken down by."""
    key: str | None = None
    """Column that names a row in the predictions; without it, the row's number from 0."""
    labels: tuple[str, ...] | None = None
    """All labels, in order; without it, those found in train. A checkpoint's own labels go here
    when it is scored."""
    bad_rows: BadRowPolicy = "error"
    """What to do with a row that cannot be used: stop, leave it out, or leave it out and keep a
    copy."""
    quarantine: str = "quarantine.jsonl"
    """Where bad_rows="quarantine" keeps its copies."""
    dev_fraction: float = 0.1
    """Part of one's own rows that becomes dev where no file for dev is given."""
    test_fraction: float = 0.0
    """Part of one's own rows that becomes test where no file for test is given."""
    split_dev: float | None = None
    """Part of a benchmark's dev that is kept for scoring where it has no train split; the rest
    becomes train."""
    cut_seed: int = 0
    """Decides which rows go where when a split is cut."""
    level: Level = "all"
    """Which part of RACE: middle school, high school, or both."""

    def __post_init__(self) -> None:
        check_choice(self, "bad_rows", ("error", "skip", "quarantine"))
        check_choice(self, "level", ("all", "middle", "high"))
        check_number(self, "dev_fraction", 0, 0.9)
        check_number(self, "test_fraction", 0, 0.9)
        check_number(self, "split_dev", 0.01, 0.9, optional=True)
        check_whole(self, "cut_seed", 0, 2**63)
        if self.dev_fraction + self.test_fraction > 0.95:
            raise ConfigError(
                f"dev_fraction {self.dev_fraction:g} and test_fraction {self.test_fraction:g} "
                "leave less than 5 % to train on"
            )
        if self.labels is not None and len(set(self.labels)) != len(self.labels):
            raise ConfigError(f"labels are named twice; got {', '.join(self.labels)}")
