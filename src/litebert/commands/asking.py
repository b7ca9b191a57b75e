"""What the one-liners have in common: a model by its folder or name, texts from the command line or
from standard input, and the answers for a person or as JSON.
"""

import json as jsonlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from litebert.errors import ConfigError, DataError
from litebert.infer.verbs import Verb
from litebert.models.index import default_model

if TYPE_CHECKING:
    from litebert.infer.predictor import Predictor

Texts = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEXT…")]


def open_model(folder: str | None, device: str, verb: Verb) -> "Predictor":
    """The model to ask, where none is named the package's own for this verb; what there is to know
    of it goes to stderr."""
    chosen = default_model(verb).folder if folder is None else folder
    from litebert.infer.predictor import load  # torch only now: wrong flags are answered at once

    predictor = load(chosen, device=device)
    for note in predictor.notes:
        print(f"note: {note}", file=sys.stderr)
    return predictor


def given(texts: Sequence[str]) -> list[str]:
    """The texts of the command line; where there are none, or `-` alone, the lines of standard
    input."""
    if texts and tuple(texts) != ("-",):
        return list(texts)
    if not texts and sys.stdin.isatty():
        raise ConfigError(
            "no text was given; write it behind the command, or send lines to standard input"
        )
    # Only a line feed ends a line, as in files (tasks/tables/lines.py): what others call line ends stand
    # inside texts.
    lines = [line.removesuffix("\r") for line in read_input().split("\n") if line.strip()]
    if not lines:
        raise DataError("standard input holds no text; expected one a line")
    return lines


def read_input() -> str:
    """All of standard input, which is UTF-8 whatever the locale says."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"standard input is not UTF-8 (byte {error.start + 1}: {error.reason}); convert it "
            "first"
        ) from error


def tell(
    answers: Sequence[dict[str, Any]], line: Callable[[dict[str, Any]], str], *, json: bool
) -> None:
    """One JSON object with all answers, or for each what `line` makes of it."""
    if json:
        print(jsonlib.dumps({"answers": list(answers)}, ensure_ascii=False))
        return
    for answer in answers:
        print(line(answer))


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def likeliest(probabilities: dict[str, float], most: int = 5) -> str:
    """The best labels with their probabilities, for a person."""
    best = sorted(probabilities.items(), key=lambda each: -each[1])[:most]
    return "   ".join(f"{label} {percent(share)}" for label, share in best)
