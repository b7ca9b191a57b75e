"""What a command's signature says about its parameters, and the reading of plain command lines.

A parameter is a flag; `Arg` has its help and metavar, `POSITIONAL` makes it a positional argument.
flags.py turns all of it into tyro's words. Importing and asking tyro takes longer than a small
model's answer, so that `read_plain` reads what needs no judgment: known flags in full, with values
that nobody could misread. Anything else, help and mistakes included, is left to tyro.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from litebert.infer.verbs import DType, EngineChoice
from litebert.tasks.decode.exits import Criterion
from litebert.terminal import write_stderr


class Arg(NamedTuple):
    """Marks a parameter: its help, and what stands for its value there."""

    help: str | None = None
    metavar: str | None = None


class Positional:
    """Marks a parameter that is no flag."""


POSITIONAL = Positional()
AnyModel = Annotated[
    str,
    Arg(
        help="Folder of a checkpoint, a run or a Hugging Face model, or the name of an embedded "
        "model."
    ),
]
Device = Annotated[str, Arg(help="cpu, cuda, cuda:1 …, or auto.")]
Engine = Annotated[
    EngineChoice,
    Arg(
        help="What computes: torch, onnx (ONNX Runtime) or openvino; auto is an exported folder's "
        "own, the fastest installed for an embedded model, else torch."
    ),
]
Exit = Annotated[
    Criterion | None,
    Arg(
        help="Let texts leave a model with exits (finetune --exits) after fewer layers: by "
        "patience, confidence or cumulative probability; by default none does."
    ),
]
Threshold = Annotated[
    float | None,
    Arg(
        help="Where a text leaves: a probability, or for patience how often its answer stayed the "
        "same; by default the calibrated threshold, which changes at most 0.5 % of answers."
    ),
]
Threads = Annotated[
    int | None,
    Arg(
        help="Threads that compute on a CPU; by default OMP_NUM_THREADS, else one for a few words "
        "and as many as cores are free when the command starts for more."
    ),
]
Unverified = Annotated[
    bool,
    Arg(
        help="Load a model without verifying its files: its manifest.json is missing, or files "
        "were changed on purpose."
    ),
]
LayerDType = Annotated[
    DType,
    Arg(
        help="Precision of the layers; auto is bfloat16 on GPUs that support it, float32 elsewhere."
    ),
]
Json = Annotated[bool, Arg(help="Print one JSON object.")]
Kernels = Annotated[
    str,
    Arg(
        help="GPU kernels: on, off, or families to switch off, such as attention=off,norm=off "
        "(litebert doctor lists them)."
    ),
]
Minutes = Annotated[
    float | None,
    Arg(
        help="Stop after so many minutes, save and exit with 75; the same command resumes. By "
        "default no limit."
    ),
]
TensorBoard = Annotated[bool, Arg(help="Write TensorBoard events into the run folder as well.")]
BatchTokens = Annotated[
    int | None, Arg(help="Tokens per batch, padding included; fewer need less memory.")
]


class Loading(NamedTuple):
    """How a verb's model is loaded: arguments of `load`.

    The fields of a named tuple are flags among those of the command that takes one.
    """

    engine: Engine = "auto"
    device: Device = "auto"
    threads: Threads = None
    unverified: Unverified = False


class ExitLoading(NamedTuple):
    """Of a verb whose texts may leave early."""

    engine: Engine = "auto"
    device: Device = "auto"
    threads: Threads = None
    exit: Exit = None
    threshold: Threshold = None
    unverified: Unverified = False


OUTPUTS = frozenset({"out", "submit", "quarantine", "target", "curve"})
"""Parameters that name what a command writes."""
_NUMBERS: dict[Any, str] = {int: r"\d{1,9}", float: r"\d{1,9}(?:\.\d{1,17})?"}


def note(*texts: str) -> None:
    """Tell the user something beside the result."""
    for text in texts:
        write_stderr(f"note: {text}")


def read_plain(
    command: Callable[..., Any], args: Sequence[str]
) -> tuple[list[Any], dict[str, Any]] | None:
    """The positional and named arguments of a call; None where tyro has to read the line."""
    hints = get_type_hints(command, include_extras=True)
    positional: list[Any] = []
    flags: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if is_flag_group(hints[name]):
            flags |= fields_of(hints[name])
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(_plain_kind(hints[name]))
        else:
            flags[name] = hints[name], parameter.default
    named = {
        name: default
        for name, (_, default) in flags.items()
        if default is not inspect.Parameter.empty
    }
    kinds = {
        f"--{name.replace('_', '-')}": (name, kind)
        for name, (hint, _) in flags.items()
        if name not in OUTPUTS and (kind := _plain_kind(hint)) is not None
    }
    texts = _read_flags(args, kinds, named)
    values = None if texts is None else _read_positional(texts, positional)
    if values is None or len(named) < len(flags):  # a required flag is missing
        return None
    for name, hint in hints.items():
        if is_flag_group(hint):
            named[name] = hint(**{field: named.pop(field) for field in hint._fields})
    return values, named


def is_flag_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_field_defaults")


def fields_of(group: Any) -> dict[str, tuple[Any, Any]]:
    """The type and the default of each field, in the order of help."""
    hints = get_type_hints(group, include_extras=True)
    return {name: (hints[name], group._field_defaults[name]) for name in group._fields}


def _read_flags(
    args: Sequence[str], kinds: dict[str, tuple[str, Any]], named: dict[str, Any]
) -> list[str] | None:
    """What is left of `args` without flags, whose values go into `named`; None if in doubt."""
    texts: list[str] = []
    seen: set[str] = set()
    last_text = at = 0
    while at < len(args):
        argument = args[at]
        at += 1
        if not argument.startswith("-"):
            if texts and last_text != at - 1:
                return None  # texts on both sides of a flag
            texts.append(argument)
            last_text = at
            continue
        if argument not in kinds or argument in seen:
            return None
        seen.add(argument)
        name, kind = kinds[argument]
        if kind is bool:
            if named[name] is not False or (at < len(args) and args[at] in ("True", "False")):
                return None
            named[name] = True
            continue
        if at == len(args):
            return None
        text = args[at]
        at += 1
        if kind == tuple[str, ...] or text.startswith("-") or not _is_plain(text, kind):
            return None
        named[name] = kind(text) if kind in (int, float) else text
    return texts


def _read_positional(texts: list[str], kinds: list[Any]) -> list[Any] | None:
    if kinds == [tuple[str, ...]]:
        return [tuple(texts)] if texts else None
    return list(texts) if len(texts) == len(kinds) and set(kinds) <= {str} else None


def _plain_kind(hint: Any) -> Any:
    """str, int, float, bool, a Literal or a tuple of texts; None for any other, and where another
    mark than ours says more."""
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        if not all(isinstance(mark, Arg | Positional) for mark in marks):
            return None
    options = [kind for kind in get_args(hint) if kind is not NoneType]
    if NoneType in get_args(hint) and len(options) == 1 and options[0] is not bool:
        (hint,) = options
    is_plain = hint in (str, int, float, bool, tuple[str, ...]) or get_origin(hint) is Literal
    return hint if is_plain else None


def _is_plain(text: str, kind: Any) -> bool:
    if kind in _NUMBERS:
        return re.fullmatch(_NUMBERS[kind], text, re.ASCII) is not None
    return kind is str or text in get_args(kind)
