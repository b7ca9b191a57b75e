"""A cut divides, keeps together what belongs together, and depends on nothing but the examples and
the seed."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.tasks.examples import TaskExample, TextExample
from litebert.tasks.tables.split import cut


def text_of(name: str) -> TextExample:
    return TextExample(key=name, first=name)


def first(example: TaskExample) -> tuple[str, ...]:
    assert isinstance(example, TextExample)
    return (example.first,)


@given(
    st.lists(st.integers(0, 30).map(str), min_size=2, max_size=80),
    st.floats(0.05, 0.9),
    st.integers(0, 5),
    st.randoms(),
)
@settings(max_examples=200, deadline=None)
def test_a_cut_divides_keeps_equals_together_and_does_not_look_at_the_order(
    names: list[str], part: float, seed: int, shuffle: Any
) -> None:
    examples = [text_of(name) for name in names]
    rest, taken = cut(examples, part, first, seed=seed)
    assert sorted(example.first for example in (*rest, *taken)) == sorted(names)
    assert not {example.first for example in rest} & {example.first for example in taken}
    if len(set(names)) > 1:
        assert taken
    largest = max(names.count(name) for name in names)
    assert len(taken) <= max(round(part * len(names)), largest)
    order = list(examples)
    shuffle.shuffle(order)
    again = cut(order, part, first, seed=seed)
    assert sorted(map(first, again[1])) == sorted(map(first, taken))


def test_a_cut_keeps_what_is_joined_through_others_together() -> None:
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("e", "f"), ("g", "h"), ("i", "j")]

    def group(example: Any) -> tuple[str, ...]:
        return example.first, example.second

    examples = [TextExample(key="", first=one, second=other) for one, other in pairs]
    for seed in range(20):
        rest, taken = cut(examples, 0.5, group, seed=seed)
        sides = [{text for example in side for text in group(example)} for side in (rest, taken)]
        assert not sides[0] & sides[1]
        assert len(taken) == 3


def test_different_seeds_cut_differently() -> None:
    examples = [text_of(str(number)) for number in range(100)]
    cuts = [tuple(map(first, cut(examples, 0.1, first, seed=seed)[1])) for seed in range(5)]
    assert len(set(cuts)) == 5
    assert {len(each) for each in cuts} == {10}
