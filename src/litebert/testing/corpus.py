"""A corpus made by a small grammar: documents about four worlds, a hero in each."""

import random
from collections.abc import Iterator
from pathlib import Path

WORLDS = {
    "sea": (
        "sailor whale ship captain",
        "sails hunts follows",
        "the cold wave;the salt wind;a far island",
    ),
    "farm": (
        "farmer horse goat miller",
        "feeds carries watches",
        "the dry barley;a wooden cart;the old barn",
    ),
    "city": (
        "baker singer driver thief",
        "meets pays forgets",
        "a crowded street;the loud market;a narrow door",
    ),
    "sky": (
        "pilot eagle moon comet",
        "crosses circles leaves",
        "the thin cloud;a quiet night;the bright south",
    ),
}
"""Who does what to whom, by the world that a document is about."""


def tiny_documents(count: int = 60, *, seed: int = 0) -> Iterator[list[str]]:
    """Documents of a few sentences each; all sentences of one are about the same world, and are
    numbered in order."""
    draw = random.Random(seed)
    for _ in range(count):
        subjects, verbs, objects = (
            part.split(";" if ";" in part else None) for part in WORLDS[draw.choice(sorted(WORLDS))]
        )
        hero = draw.choice(subjects)
        times = ["first", *["then"] * draw.randint(2, 8), "finally"]
        yield [f"{time} the {hero} {draw.choice(verbs)} {draw.choice(objects)} ." for time in times]


def tiny_corpus(path: Path, *, documents: int = 60, seed: int = 0) -> Path:
    """A text file of documents with a blank line between, a sentence a line."""
    path.write_text(
        "\n\n".join("\n".join(sentences) for sentences in tiny_documents(documents, seed=seed))
        + "\n"
    )
    return path
