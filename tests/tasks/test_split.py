"""A cut divides, keeps together what belongs together, and depends on nothing but the examples and
the seed."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.tasks.examples import TaskExample, TextExample
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.split import cut, cut_missing


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


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abc")), min_size=2, max_size=80),
    st.floats(0.05, 0.5),
    st.integers(0, 3),
    st.randoms(),
)
@settings(max_examples=200, deadline=None)
def test_strata_divide_alike_and_the_order_does_not_matter(
    rows: list[tuple[int, str]], fraction: float, seed: int, shuffle: Any
) -> None:
    examples = [
        TextExample(key="", first=f"{label}{number}", label=label) for number, label in rows
    ]
    labels = [str(each.label) for each in examples]
    rest, taken = cut(examples, fraction, first, seed=seed, strata=labels)
    assert sorted(map(first, (*rest, *taken))) == sorted(map(first, examples))
    if len({each.first for each in examples}) > 1:
        assert rest
        assert taken
    counts = Counter(str(each.label) for each in taken if isinstance(each, TextExample))
    largest = max(Counter(rows).values())  # the smallest group is taken where none fits
    if len(taken) > largest:
        for label, total in Counter(labels).items():
            assert counts[label] <= fraction * total + 1
            if len({each for each in rows if each[1] == label}) > 1:
                assert counts[label] < total
    order = list(examples)
    shuffle.shuffle(order)
    strata = [str(each.label) for each in order]
    assert sorted(map(first, cut(order, fraction, first, seed=seed, strata=strata)[1])) == sorted(
        map(first, taken)
    )


def rare_rows(rare: int, of: int) -> list[TaskExample]:
    return [
        TextExample(key="", first=f"text {n}", label="rare" if n < rare else "usual")
        for n in range(of)
    ]


def test_dev_has_the_share_of_every_label_whatever_the_seed() -> None:
    """Without strata, seeds differ in how many of the 30 rare rows of 300 they take."""
    unlike = set()
    for seed in range(10):
        for stratify in (True, False):
            splits: dict[str, Any] = {"train": rare_rows(30, 300)}
            options = TableOptions(cut_seed=seed, stratify=stratify)
            notes, is_stratified = cut_missing(splits, ["train"], options)
            assert is_stratified == stratify
            assert ("its share of every label" in notes[0]) == stratify
            rare = sum(each.label == "rare" for each in splits["dev"])
            assert len(splits["dev"]) == 30
            if stratify:
                assert rare == 3
            else:
                unlike.add(rare)
    assert len(unlike) > 1


def test_a_cut_without_labels_is_the_one_of_before() -> None:
    """The dev of earlier runs, by its first texts."""
    taken = cut(rare_rows(1, 40), 0.2, first, seed=0)[1]
    assert [each.first for each in taken if isinstance(each, TextExample)] == [
        f"text {n}" for n in (6, 8, 9, 14, 19, 20, 26, 27)
    ]


def test_several_labels_are_cut_by_the_rarest() -> None:
    labels = [("a", "b"), ("a",), ("a", "c"), ()]
    splits: dict[str, Any] = {
        "train": [TextExample(key="", first=f"t{n}", label=labels[n % 4]) for n in range(80)]
    }
    cut_missing(splits, ["train"], TableOptions(dev_fraction=0.2))
    assert Counter(each.label for each in splits["dev"]) == dict.fromkeys(labels, 4)
