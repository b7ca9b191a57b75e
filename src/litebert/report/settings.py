"""Recipes and environments as tables: all settings, what differs between runs, and what differs
from the nearest named recipe.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from litebert.errors import LitebertError
from litebert.recipes import NAMED, PretrainRecipe, current_names
from litebert.report.markup import cell, display, escape, fold, row_head, table
from litebert.report.run import RunData

_MAX_SETTINGS = 400
"""Settings shown of one file."""
_DEFAULT = "affordable"


def _flatten(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of each setting in nested JSON."""
    if isinstance(data, Mapping) and data:
        for name, value in data.items():
            yield from _flatten(value, f"{prefix}{name}.")
    elif isinstance(data, list) and any(isinstance(item, Mapping | list) for item in data):
        for i, value in enumerate(data):
            yield from _flatten(value, f"{prefix}{i}.")
    elif prefix or data not in (None, {}, []):
        yield prefix.rstrip(".") or "value", data


def _settings(recipe: Any) -> dict[str, Any]:
    """Settings by their current names: what is under `recipe`, then the rest."""
    if isinstance(recipe, dict) and isinstance(recipe.get("recipe"), dict):
        parsed = parse_recipe(recipe)
        own = parsed.to_dict() if parsed else current_names(recipe["recipe"])
        recipe = own | {name: value for name, value in recipe.items() if name != "recipe"}
    return dict(islice(_flatten(recipe), _MAX_SETTINGS))


def _nearest_recipe(recipe: Any) -> tuple[str, dict[str, Any]] | None:
    """The nearest named recipe and its settings; None for anything but a pretraining recipe."""
    parsed = parse_recipe(recipe)
    if parsed is None:
        return None
    own = dict(_flatten(parsed.to_dict()))
    bases = {name: dict(_flatten(NAMED[name].to_dict())) for name in (_DEFAULT, *NAMED)}
    name = min(bases, key=lambda name: len(_differing_names([own, bases[name]])))
    return name, bases[name]


def parse_recipe(recipe: Any) -> PretrainRecipe | None:
    """A recipe file's content as a recipe; none where it is of another kind."""
    inner = recipe.get("recipe", recipe) if isinstance(recipe, dict) else None
    try:
        return PretrainRecipe.from_dict(inner) if isinstance(inner, dict) and inner else None
    except (LitebertError, TypeError, ValueError, AttributeError):
        return None


def _differing_names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names whose values are not the same in all."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [
        name
        for name in names
        if any(each.get(name, _ABSENT) != settings[0].get(name, _ABSENT) for each in settings)
    ]


def recipe_section(run: RunData) -> str:
    """All settings, with those that differ from the nearest named recipe marked."""
    own = _settings(run.recipe)
    if not own:
        return '<p class="quiet">The run has no recipe.json yet.</p>'
    nearest = _nearest_recipe(run.recipe)
    if nearest is None:
        return _plain_table("setting", "value", own)
    base_name, base = nearest
    rows, marked = [], []
    absent = {name: _ABSENT for name in base if name.startswith("overrides.") and name not in own}
    for name, value in (own | absent).items():
        other = base.get(name, _ABSENT)
        differs = (name in base or name.startswith("overrides.")) and other != value
        rows.append(
            [
                row_head(name),
                cell(_display(value), "changed" if differs else ""),
                cell(_display(other) if differs else "", "quiet"),
            ]
        )
        marked += rows[-1:] if differs else []
    word = "setting differs" if len(marked) == 1 else "settings differ"
    summary = f"{len(marked)} {word} from it" if marked else "nothing differs from it"
    head = f"<p>The nearest named recipe is <b>{escape(base_name)}</b>; {summary}.</p>"
    names = ["setting", "this run", base_name]
    top = table(names, marked, numbers=False) if marked else ""
    return head + top + fold(f"All {len(rows)} settings", table(names, rows, numbers=False))


def environment_section(run: RunData) -> str:
    own = dict(islice(_flatten(run.environment), _MAX_SETTINGS))
    if not own:
        return '<p class="quiet">The run has no environment.json yet.</p>'
    return _plain_table("what", "value", own)


def _plain_table(name: str, value: str, settings: Mapping[str, Any]) -> str:
    rows = [[row_head(key), cell(display(each))] for key, each in settings.items()]
    return table([name, value], rows, numbers=False)


def differences_section(runs: Sequence[RunData]) -> str:
    """What differs between the recipes and the environments of runs, one column a run."""
    html = ""
    for what, settings in (
        ("recipes", [_settings(run.recipe) for run in runs]),
        ("environments", [dict(_flatten(run.environment)) for run in runs]),
    ):
        rows = [
            [row_head(name), *(cell(_display(each.get(name, _ABSENT))) for each in settings)]
            for name in _differing_names(settings)[:_MAX_SETTINGS]
        ]
        html += f"<h3>What differs in the {what}</h3>" + (
            table(["setting", *(run.name for run in runs)], rows, numbers=False)
            if rows
            else f'<p class="quiet">The {what} are the same.</p>'
        )
    return html


_ABSENT = object()
"""A setting that a file does not have; unlike none."""


def _display(value: Any) -> str:
    return "—" if value is _ABSENT else display(value)
