"""Made sentences with dates, prices and names, from which a vocabulary of a few hundred pieces is
learned in a second."""

import random

_SUBJECTS = (
    "the old sailor",
    "Anna",
    "a red-haired miller",
    "Café Noël",
    "nobody (so far)",
    "the committee",
    "Dr. Brown",
    "my brother's wife",
)
_VERBS = (
    "watched",
    "sold",
    "painted",
    "found",
    "returned",
    "questioned",
    "carried",
    "forgot",
    "measured",
    "described",
)
_OBJECTS = (
    "a wooden boat",
    'the "blue" lantern',
    "two horses",
    "an unfinished letter",
    "the northern lights",
    "£5 of flour",
    "bread – and salt",
)


def made_lines(count: int = 1500, *, seed: int = 0) -> list[str]:
    """Sentences in which years end in commas often enough to be learned with them."""
    draw = random.Random(seed)
    return [
        f"In {draw.choice((1998, 2004, 2010))}, {draw.choice(_SUBJECTS)} {draw.choice(_VERBS)} "
        f"{draw.choice(_OBJECTS)}, "
        f"{draw.randint(1, 9)},{draw.choice(('000', '500'))} in all, and {draw.choice(_VERBS)} "
        f"{draw.choice(_OBJECTS)}."
        for _ in range(count)
    ]
