"""Flags from data: a command's signature, and the settings it takes, become its command line.

A parameter is a flag; its help is its line under `Args:`. A parameter that is a settings dataclass
(`TableOptions`) or is marked with `RecipeFlags` gives one flag for each field: name, type, help and
default are read from the field, the only place that states them.
"""

import ast
import contextlib
import functools
import inspect
import io
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import pairwise
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Required,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from litebert.checks import clip, shorten
from litebert.commands.marks import OUTPUTS, Arg, Positional, fields_of, is_flag_group, note
from litebert.errors import ConfigError
from litebert.files import check_local, parse_json

if TYPE_CHECKING:  # recipes are imported by the commands that have one
    from litebert.recipes import Recipe

_SETTINGS = PrimitiveConstructorSpec(
    nargs="*",
    metavar="SETTING=VALUE…",
    instance_from_str=lambda texts: dict(map(_pair, texts)),
    is_instance=lambda value: True,
    str_from_instance=lambda value: [_shown(value)],
)
EncoderSettings = Annotated[Mapping[str, Any] | tuple[()], _SETTINGS]

_FLAG_OF = {"name": "optimizer", "overrides": "encoder"}
"""Fields whose flag has another name."""


@dataclass(frozen=True)
class RecipeFlags:
    """Marks the parameter that receives the recipe's settings: a dict of those on the command
    line."""

    recipe: Callable[[str | None], "Recipe"]
    """From the value of `--recipe` (None without one) to the recipe whose values help shows."""
    omitted: frozenset[str] = frozenset()
    """Fields that are no flags."""
    by_task: frozenset[str] = frozenset()
    """Fields whose default depends on the task, unless there is a `--recipe`."""


@dataclass(frozen=True)
class _Parameter:
    """How one parameter of a command is read."""

    groups: dict[str, dict[str, Any]]
    """Annotation by flag, by the title that help gives them ("" for none)."""
    build: Callable[[dict[str, Any]], Any]
    """From the options on the command line to the argument."""
    defaults: dict[str, Any] = field(default_factory=dict)


def call(command: Callable[..., Any], args: Sequence[str], *, prog: str) -> None:
    """Run `command` with what `args` say. Wrong flags and --help end in SystemExit."""
    parameters = _parameters(command, args)
    plain: dict[str, Any] = {}
    titled: dict[str, Any] = {}
    for parameter in parameters.values():
        for title, flags in parameter.groups.items():
            if title:
                group: Any = _options(flags)
                titled[f"{title} flags"] = Annotated[group, tyro.conf.arg(name=title)]
            else:
                plain |= flags
    parse = functools.partial(
        tyro.cli,
        _options(plain | titled),
        prog=prog,
        description=_paragraphs(_summary(command)),
        default={flag: each for one in parameters.values() for flag, each in one.defaults.items()},
    )
    options = _parsed(parse, _renewed(args, _flags_of(command)))
    for title in titled:
        options |= options.pop(title)
    for flag in OUTPUTS & options.keys():
        check_local(options[flag] or "")
    bound = inspect.signature(command).bind_partial()
    bound.arguments |= {name: parameter.build(options) for name, parameter in parameters.items()}
    command(*bound.args, **bound.kwargs)


def _parsed(parse: Callable[..., Any], args: Sequence[str]) -> Any:
    """The options. An error of usage names the arguments, long ones by their beginning."""
    short = [clip(argument, 400) for argument in args]
    if short == args:
        return parse(args=args)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return parse(args=args)
    except SystemExit:
        return parse(args=short)


def _flags_of(command: Callable[..., Any]) -> dict[str, Any]:
    """Annotation by flag of everything that a command reads."""
    parameters = _parameters(command, ()).values()
    groups = [group for parameter in parameters for group in parameter.groups.values()]
    return {flag: annotation for group in groups for flag, annotation in group.items()}


def _options(flags: dict[str, Any]) -> Any:
    typed_dict: Any = TypedDict  # mypy wants its fields to be literals
    return typed_dict("Options", flags, total=False)


def _parameters(command: Callable[..., Any], args: Sequence[str]) -> dict[str, _Parameter]:
    hints = get_type_hints(command, include_extras=True)
    help_of = _arguments(command)
    result: dict[str, _Parameter] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        hint, marks = _unwrapped(hints[name])
        recipe_flags = [mark for mark in marks if isinstance(mark, RecipeFlags)]
        if recipe_flags:
            result[name] = _recipe_parameter(recipe_flags[0], _value_of("--recipe", args))
        elif is_flag_group(hint):
            result[name] = _group_parameter(hint)
        elif is_dataclass(hint):
            result[name] = _settings_parameter(name, hint)
        else:
            result[name] = _plain_parameter(name, hint, marks, parameter.default, help_of.get(name))
    return result


def _plain_parameter(
    name: str, hint: Any, marks: tuple[Any, ...], default: Any, help: str | None
) -> _Parameter:
    required, optional = default is inspect.Parameter.empty, default in (None, (), "")
    kind, shown = _without_none(hint), None
    if kind is bool and default is not None:  # of one without a default both flags exist
        marks, shown = (*marks, tyro.conf.FlagCreatePairsOff), f"(default: {_shown(default)})"
    elif optional:
        shown = "(optional)"
    elif required and get_origin(kind) is tuple:
        shown = "(required)"
    annotation: Any = Annotated[(kind, *marks, tyro.conf.arg(help=help, help_behavior_hint=shown))]
    return _Parameter(
        groups={"": {name: Required[annotation] if required else annotation}},
        build=lambda options: options.get(name, default),
        defaults={} if required or default is None else {name: default},
    )


def _group_parameter(group: Any) -> _Parameter:
    each = {
        name: _plain_parameter(name, *_unwrapped(hint), default, None)
        for name, (hint, default) in fields_of(group).items()
    }
    return _Parameter(
        groups={"": {name: one.groups[""][name] for name, one in each.items()}},
        build=lambda options: group(**{name: one.build(options) for name, one in each.items()}),
        defaults={name: value for one in each.values() for name, value in one.defaults.items()},
    )


def _settings_parameter(name: str, settings: Any) -> _Parameter:
    hints, help_of = get_type_hints(settings), _field_docs(settings)
    flags = {}
    for each in fields(settings):
        shown = "(optional)" if each.default is None else f"(default: {_shown(each.default)})"
        conf = tyro.conf.arg(help=help_of[each.name], help_behavior_hint=shown, prefix_name=False)
        flags[each.name] = Annotated[_without_none(hints[each.name]), conf]
    return _Parameter({name: flags}, lambda options: settings(**_among(options, flags)))


def _recipe_parameter(marked: RecipeFlags, named: str | None) -> _Parameter:
    try:
        recipe = marked.recipe(named)
    except ConfigError:  # the command itself says what is wrong with it
        named, recipe = None, marked.recipe(None)
    groups = {
        title: _recipe_group(owner, marked, shows_all=named is not None)
        for title, owner in (("recipe", recipe), ("optimizer", recipe.optimizer))
    }
    names = {name for group in groups.values() for name in group}
    return _Parameter(groups, lambda options: _among(options, names))


def _recipe_group(owner: Any, marked: RecipeFlags, *, shows_all: bool) -> dict[str, Any]:
    from litebert.recipes import OptimizerSpec

    settings: Any = type(owner)
    hints, help_of = get_type_hints(settings), _field_docs(settings)
    flags: dict[str, Any] = {}
    for each in fields(owner):
        if each.name in marked.omitted or hints[each.name] is OptimizerSpec:
            continue
        depends = each.name in marked.by_task and not shows_all
        shown = "by task" if depends else _shown(getattr(owner, each.name))
        conf = tyro.conf.arg(
            help=help_of[each.name], help_behavior_hint=f"(default: {shown})", prefix_name=False
        )
        kind, marks = _reader(hints[each.name])
        flags[_FLAG_OF.get(each.name, each.name)] = Annotated[(kind, *marks, conf)]
    return flags


def _reader(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type to read a field as, and tyro's specification where the type alone does not say."""
    from litebert.recipes import FractionStages, Stages
    from litebert.recipes.class_weights import ClassWeights

    kind, optional = _without_none(hint), NoneType in get_args(hint)
    if get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is tuple:
        return kind, (_SETTINGS,)
    if kind is ClassWeights:
        weights: PrimitiveConstructorSpec[ClassWeights] = PrimitiveConstructorSpec(
            nargs="*",
            metavar="none|balanced|LABEL=WEIGHT…",
            instance_from_str=ClassWeights.parse,
            is_instance=lambda value: isinstance(value, ClassWeights),
            str_from_instance=lambda value: str(value).split(),
        )
        return kind, (weights,)
    if kind == tuple[int, ...]:
        numbers: PrimitiveConstructorSpec[tuple[int, ...]] = PrimitiveConstructorSpec(
            nargs="*",
            metavar="INT…",
            instance_from_str=lambda texts: tuple(
                map(int, " ".join(texts).replace(",", " ").split())
            ),
            is_instance=lambda value: isinstance(value, tuple),
            str_from_instance=lambda value: list(map(str, value)),
        )
        return kind, (numbers,)
    readers: dict[Any, tuple[Callable[[str], Any], str, int]] = {
        Stages: (Stages.parse, "INT|STAGES", 1),
        FractionStages: (FractionStages.parse, "FLOAT|STAGES", 1),
        int | float: (_steps_or_fraction, "STEPS|FRACTION", 1),
        tuple[float, float]: (float, "FLOAT FLOAT", 2),
        int: (int, "INT", 1),
        float: (float, "FLOAT", 1),
    }
    if kind not in readers or (kind in (int, float) and not optional):
        return kind, ()
    reader, metavar, count = readers[kind]

    def read(texts: list[str]) -> Any:
        if optional and [text.lower() for text in texts] == ["none"]:
            return None
        try:
            values = tuple(reader(text) for text in texts)
        except ValueError:
            raise ValueError(f"expected {metavar}; got {' '.join(texts)}") from None
        return values if count > 1 else values[0]

    specification = PrimitiveConstructorSpec(
        nargs=count,
        metavar=f"{metavar}|none" if optional and count == 1 else metavar,
        instance_from_str=read,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [_shown(value)],
    )
    return kind, (specification,)


def _steps_or_fraction(text: str) -> int | float:
    """A number of steps from 1 up, or below 1 a fraction of the run."""
    number = float(text)
    if number < 1:
        return number
    if not number.is_integer():
        raise ValueError("not a whole number of steps")
    return int(number)


def _pair(text: str) -> tuple[str, int | float | bool | str]:
    """`norm=pre` as a pair; numbers, true and false become what they say."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(
            f"an encoder setting is written name=value, such as norm=pre; got {shorten(text)}"
        )
    try:
        parsed = parse_json(value)
    except ValueError:
        parsed = value
    return name, parsed if isinstance(parsed, int | float | bool | str) else value


def _renewed(args: Sequence[str], flags: dict[str, Any]) -> list[str]:
    """The arguments as this release spells them; a note says what was renamed."""
    names = {f"--{flag.replace('_', '-')}": kind for flag, kind in flags.items()}
    is_known = all(each.partition("=")[0] in names for each in args if each.startswith("--"))
    old_flags, old_settings = ({}, {}) if is_known else _old_names()
    result: list[str] = []
    for argument in args:
        name, equals, value = argument.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        if name in old_flags and name not in names and old_flags[name] in names:
            note(f"{name} is now {old_flags[name]}; the old name is read in this release only")
            argument = old_flags[name] + equals + value
        elif equals and name in old_settings and "--encoder" in names:
            note(f"{name} is now {old_settings[name]}; the old name is read in this release only")
        last = result[-1] if result else ""
        if argument in ("True", "False") and _unwrapped(names.get(last))[0] is bool:
            result[-1] = last if argument == "True" else f"--no-{last[2:]}"
        else:
            result.append(argument)
    return result


def _old_names() -> tuple[dict[str, str], dict[str, str]]:
    """Flags and encoder settings by their old names, which are still read in this release."""
    from litebert.recipes import RENAMED, RENAMED_ENCODER

    renamed = RENAMED | {"engine": "runner"}
    flags = {
        f"--{old.replace('_', '-')}": f"--{new.replace('_', '-')}" for old, new in renamed.items()
    }
    return flags, dict(RENAMED_ENCODER)


def _value_of(flag: str, args: Sequence[str]) -> str | None:
    for argument, following in pairwise([*args, ""]):
        if argument == flag:
            return following
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    return None


def _among(options: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def _unwrapped(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type and its annotations."""
    if get_origin(hint) is Required:
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        return inner, tuple(map(_for_tyro, marks))
    return hint, ()


def _for_tyro(mark: Any) -> Any:
    """A mark of marks.py as tyro's own."""
    match mark:
        case Positional():
            return tyro.conf.Positional
        case Arg():
            return tyro.conf.arg(help=mark.help, metavar=mark.metavar)
    return mark


def _without_none(hint: Any) -> Any:
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if len(kinds) == len(get_args(hint)):
        return hint
    return functools.reduce(lambda one, other: one | other, kinds)


def _shown(value: Any) -> str:
    """A default as it would be written on the command line."""
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case int():
            return f"{value:_}"
        case float():
            return f"{value:g}"
        case tuple() if value and isinstance(value[0], tuple):
            return " ".join(f"{name}={_shown(item)}" for name, item in value)
        case tuple():
            return " ".join(map(_shown, value)) or "none"
        case _:
            return str(value)


@functools.cache
def _field_docs(settings: Any) -> dict[str, str]:
    """The docstring under each field of a settings class, on one line."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for node, after in pairwise(tree.body):
        match node, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                docs[name] = " ".join(text.split())
    return docs


def _summary(command: Callable[..., Any]) -> str:
    return (inspect.getdoc(command) or "").partition("\nArgs:\n")[0].strip()


def _arguments(command: Callable[..., Any]) -> dict[str, str]:
    """The line of each parameter under `Args:`."""
    text = (inspect.getdoc(command) or "").partition("\nArgs:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", text, flags=re.MULTILINE)
    return {name: " ".join(entry.split()) for name, entry in entries}


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
