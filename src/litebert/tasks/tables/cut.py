"""One split into two, once and for all: a pure function of the examples and a seed.
 Examples that share something, a title or a text, stay on one side, so that nothing is trained on
and scored. Groups are taken in the order of a seeded hash until the part is full; a group that
would overfill it is passed over.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence

from litebert.tasks.examples import TaskExample

Group = Callable[[TaskExample], tuple[str, ...]]


def cut(
    examples: Sequence[TaskExample], part: float, group: Group, *, seed: int
) -> tuple[list[TaskExample], list[TaskExample]]:
    """(the rest, the part), each in the order of `examples`; the part has at least one group, as
    has the rest if it can."""
    shared = [group(example) for example in examples]
    groups = _components(shared)
    sizes = Counter(groups)
    ranks: dict[int, bytes] = {}
    for number, texts in zip(groups, shared, strict=True):
        text = "\0".join((str(seed), *texts)).encode(errors="surrogatepass")
        ranks[number] = min(hashlib.sha256(text).digest(), ranks.get(number, b"\xff" * 32))
    wanted, taken, count = max(round(part * len(examples)), 1), set[int](), 0
    order = sorted(sizes, key=lambda number: (ranks[number], number))
    for number in order:
        if count + sizes[number] <= wanted:
            taken.add(number)
            count += sizes[number]
    if not taken and len(order) > 1:  # every group is larger than the part: the smallest then
        taken.add(min(order, key=lambda number: sizes[number]))
    rest = [
        example for number, example in zip(groups, examples, strict=True) if number not in taken
    ]
    return rest, [
        example for number, example in zip(groups, examples, strict=True) if number in taken
    ]


def _components(shared: Sequence[tuple[str, ...]]) -> list[int]:
    """For each example the number of its group: the first example that it is joined with, directly
    or through others."""
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
