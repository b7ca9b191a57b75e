"""litebert models: nothing in; the models that come with the package, with what their cards say,
out."""

import json as jsonlib
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from litebert.models.index import EmbeddedModel, embedded_models


def models(*, json: bool = False) -> None:
    """List the models that come with litebert: name, size, parameters, verbs, license and scores.
    Each has a card, README.md.

    Args:
        json: Print one JSON object.
    """
    found = [describe(model) for model in embedded_models()]
    if json:
        print(jsonlib.dumps({"models": found}, ensure_ascii=False))
        return
    if not found:
        print(
            "no model comes with this litebert; those of your own are named by their folders: "
            "litebert fill --model DIR …"
        )
        return
    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in ("name", "size", "parameters", "can", "license", "scores"):
        table.add_column(column, justify="right" if column in ("size", "parameters") else "left")
    for fact in found:
        scores = ", ".join(f"{score['task']} {score['value']:g}" for score in fact["scores"])
        size = f"{fact['bytes'] / 1e6:.1f} MB"
        table.add_row(
            fact["name"],
            size,
            f"{fact['parameters']:,}",
            ", ".join(fact["verbs"]),
            fact["license"],
            scores,
        )
    console.print(table)
    for fact in found:
        console.print(f"\n{fact['name']}: {fact['summary']}\n  {fact['card']}", soft_wrap=True)


def describe(model: EmbeddedModel) -> dict[str, Any]:
    """What is listed of a model, as plain data."""
    card = model.card()
    return {
        "name": model.name,
        "bytes": model.num_bytes,
        "parameters": card.parameters,
        "verbs": list(model.verbs),
        "license": card.license,
        "scores": [asdict(score) for score in card.scores],
        "summary": card.summary,
        "card": str(model.page),
    }
