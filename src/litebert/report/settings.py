"""Recipes and environments as tables: JSON in; settings by name, what differs, and from which named
recipe, out."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from litebert.errors import LitebertError
from litebert.recipes import NAMED, PretrainRecipe
from litebert.report.markup import cell, fold, shown, table, text
from litebert.report.run import Run

MOST = 400
"""Settings shown of one file at most."""
DEFAULT = "affordable"


def leaves(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of each setting in nested JSON."""
    if isinstance(data, Mapping) and data:
        for name, value in data.items():
            yield from leaves(value, f"{prefix}{name}.")
    elif isinstance(data, list) and any(isinstance(item, Mapping | list) for item in data):
        for i, value in enumerate(data):
            yield from leaves(value, f"{prefix}{i}.")
    elif prefix or data not in (None, {}, []):
        yield prefix.rstrip(".") or "value", data


def settings_of(recipe: Any) -> dict[str, Any]:
    """Settings of a recipe file: what stands under `recipe`, then the rest, such as the run's
    inputs."""
    if isinstance(recipe, dict) and isinstance(recipe.get("recipe"), dict):
        recipe = recipe["recipe"] | {
            name: value for name, value in recipe.items() if name != "recipe"
        }
    return dict(islice(leaves(recipe), MOST))


def nearest(recipe: Any) -> tuple[str, dict[str, Any]] | None:
    """The named recipe with the fewest differences, and its settings; none where it is no
    pretraining recipe."""
    parsed = pretraining(recipe)
    if parsed is None:
        return None
    own = dict(leaves(parsed.to_dict()))
    bases = {name: dict(leaves(NAMED[name].to_dict())) for name in (DEFAULT, *NAMED)}
    name = min(bases, key=lambda name: len(differing([own, bases[name]])))
    return name, bases[name]


def pretraining(recipe: Any) -> PretrainRecipe | None:
    """A recipe file's content as a recipe; none where it is of another kind."""
    inner = recipe.get("recipe", recipe) if isinstance(recipe, dict) else None
    try:
        return PretrainRecipe.from_dict(inner) if isinstance(inner, dict) and inner else None
    except (LitebertError, TypeError, ValueError, AttributeError):
        return None


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names whose values are not the same in all."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [
        name
        for name in names
        if any(each.get(name, _ABSENT) != settings[0].get(name, _ABSENT) for each in settings)
    ]


def recipe_section(run: Run) -> str:
    """All settings, with those that differ from the nearest named recipe marked."""
    own = settings_of(run.recipe)
    if not own:
        return '<p class="quiet">The run has no recipe.json yet.</p>'
    found = nearest(run.recipe)
    if found is None:
        rows = [[cell(name, "th", scope="row"), cell(shown(value))] for name, value in own.items()]
        return table(["setting", "value"], rows, numbers=False)
    base_name, base = found
    rows, marked = [], []
    absent = {name: _ABSENT for name in base if name.startswith("overrides.") and name not in own}
    for name, value in (own | absent).items():
        other = base.get(name, _ABSENT)
        differs = (name in base or name.startswith("overrides.")) and other != value
        value_cell = cell(_said(value), class_="changed") if differs else cell(_said(value))
        rows.append(
            [
                cell(name, "th", scope="row"),
                value_cell,
                cell(_said(other) if differs else "", class_="quiet"),
            ]
        )
        marked += rows[-1:] if differs else []
    word = "setting differs" if len(marked) == 1 else "settings differ"
    said = f"{len(marked)} {word} from it" if marked else "nothing differs from it"
    head = f"<p>The nearest named recipe is <b>{text(base_name)}</b>; {said}.</p>"
    top = table(["setting", "this run", base_name], marked, numbers=False) if marked else ""
    return (
        head
        + top
        + fold(
            f"All {len(rows)} settings",
            table(["setting", "this run", base_name], rows, numbers=False),
        )
    )


def environment_section(run: Run) -> str:
    own = list(islice(leaves(run.environment), MOST))
    if not own:
        return '<p class="quiet">The run has no environment.json yet.</p>'
    rows = [[cell(name, "th", scope="row"), cell(shown(value))] for name, value in own]
    return table(["what", "value"], rows, numbers=False)


def difference_table(names: Sequence[str], settings: Sequence[Mapping[str, Any]], same: str) -> str:
    """What differs between runs, one column a run; the sentence `same` where nothing does."""
    found = differing(settings)[:MOST]
    if not found:
        return f'<p class="quiet">{text(same)}</p>'
    rows = [
        [
            cell(name, "th", scope="row"),
            *(cell(_said(each.get(name, _ABSENT))) for each in settings),
        ]
        for name in found
    ]
    return table(["setting", *names], rows, numbers=False)


class _Absent:
    """A setting that a file does not have; unlike none."""


_ABSENT = _Absent()


def _said(value: Any) -> str:
    return "—" if value is _ABSENT else shown(value)
