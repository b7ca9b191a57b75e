"""Depth-wise batching: an input's result is that of a direct call, whenever it is admitted and in
whatever company, for every plan, engine, verb and exit rule."""

import random
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert.errors import CheckpointError, DataError
from litebert.infer import depthwise
from litebert.infer.continuous import Continuous, can_continue
from litebert.infer.depthwise import Depthwise, Failed, Row, shares_layers
from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.predictor import Predictor, load
from litebert.infer.verbs import (
    answer_example,
    choice_example,
    supported_verbs,
    tag_example,
    text_example,
)
from litebert.tasks.decode.exits import ExitRule
from tests.helpers.models import texts
from tests.infer.test_exits import checkpoint_of, some_leave
from tests.infer.test_export import HEADS, PLANS, model_of

Items = list[tuple[Any, Any]]


def mixed_items(count: int, *, seed: int = 0) -> Items:
    """Verbs in turn, with inputs of very different lengths."""
    short, draw = texts(count, seed=seed), random.Random(seed)
    items: Items = []
    for number, text in enumerate(short):
        verb = ("embed", "classify", "pair", "regress", "fill", "tag", "answer", "choose")[
            number % 8
        ]
        other = draw.choice(short)
        item: Any = {
            "embed": text,
            "fill": f"[MASK] {text[:40]} [MASK]" if number % 3 else "the [MASK] sails",
            "classify": text_example(text),
            "pair": text_example(text, other),
            "regress": text_example(text, None if number % 3 else other),
            "tag": tag_example(text),
            "answer": answer_example("who sings", text),
            "choose": choice_example(other, "who", [text[:30], "a", "the old house"]),
        }[verb]
        items.append((verb, item))
    return items


def directly(predictor: Predictor, items: Items) -> list[Any]:
    """One call for each."""
    results: list[Any] = []
    for verb, item in items:
        if verb == "fill":
            results.append(predictor.fill(item, top=3))
        elif verb == "embed":
            results.append(predictor.embed(item))
        else:
            results += predictor.predict([item], kind=verb)
    return results


def layer_by_layer(
    predictor: Predictor, items: Items, *, seed: int = 0, most: int = 4
) -> list[Any]:
    """Inputs that come at any tick, a few at a time."""
    continuous, draw = Continuous(predictor), random.Random(seed)
    results: dict[Any, Any] = {}
    waiting = list(enumerate(items))
    while waiting or len(continuous):
        for _ in range(draw.randint(0, most)):
            if waiting:
                ticket, (verb, item) = waiting.pop(0)
                continuous.admit(verb, item, ticket, top=3)
        for ticket, result in continuous.tick():
            assert ticket not in results
            if isinstance(result, Exception):
                raise result
            results[ticket] = result
    return [results[number] for number in range(len(items))]


def assert_equal(ours: Any, theirs: Any, *, atol: float = 3e-5) -> None:
    """Numbers to rounding, the rest exactly."""
    assert type(ours) is type(theirs)
    if isinstance(ours, np.ndarray):
        np.testing.assert_allclose(ours, theirs, atol=atol)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, abs=atol, rel=1e-4)
    elif is_dataclass(ours) and not isinstance(ours, type):
        for each in fields(ours):
            assert_equal(getattr(ours, each.name), getattr(theirs, each.name), atol=atol)
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            assert_equal(value, theirs[name], atol=atol)
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one, other, atol=atol)
    else:
        assert ours == theirs


def opened(checkpoint: Any, folder: Path, engine: str, **options: Any) -> Predictor:
    if engine == "torch":
        return load(checkpoint.save(folder / "model"), device="cpu", threads=1)
    export_folder(checkpoint, folder / "exported", ExportOptions(runtime=engine, **options))  # type: ignore[arg-type]
    return load(folder / "exported", threads=1)


@pytest.mark.parametrize(
    ("plan", "engine"),
    [
        *((plan, "torch") for plan in PLANS),
        *((plan, "onnx") for plan in ("cycle", "own ends", "attention shared", "split adapters")),
    ],
)
def test_every_plan_gives_what_a_direct_call_gives(tmp_path: Path, plan: str, engine: str) -> None:
    heads = ("masked", "classify", "regress", "tag")
    predictor = opened(model_of(tmp_path, heads, **PLANS[plan]), tmp_path, engine)
    items = [item for item in mixed_items(24) if item[0] in predictor.verbs]
    assert len({verb for verb, _ in items}) == 6
    assert_equal(layer_by_layer(predictor, items), directly(predictor, items))


@pytest.mark.parametrize("engine", ["torch", "onnx", "openvino"])
def test_every_verb_gives_what_a_direct_call_gives(tmp_path: Path, engine: str) -> None:
    predictor = opened(model_of(tmp_path, HEADS, norm="pre", positions="rotary"), tmp_path, engine)
    items = mixed_items(32, seed=1)
    expected = directly(predictor, items)
    for seed, most in ((0, 2), (1, 32)):
        assert_equal(layer_by_layer(predictor, items, seed=seed, most=most), expected)


def test_joint_spans_and_several_labels(tmp_path: Path) -> None:
    checkpoint = model_of(tmp_path, ("multilabel", "joint_span"), num_groups=2)
    predictor = opened(checkpoint, tmp_path, "torch")
    items = [item for item in mixed_items(24, seed=2) if item[0] in predictor.verbs]
    assert {verb for verb, _ in items} == {"embed", "classify", "pair", "answer"}
    assert_equal(layer_by_layer(predictor, items), directly(predictor, items))


def test_int8_of_onnx_stays_within_its_tolerance(tmp_path: Path) -> None:
    """ONNX Runtime chooses the scale of its 8-bit activations by the batch, so that an input's
    company moves its numbers a little: here by less than 0.05 of vectors with numbers around 1."""
    checkpoint = model_of(tmp_path, ("classify",))
    predictor = opened(checkpoint, tmp_path, "onnx", precision="int8")
    items = [("embed", text) for text in texts(24)]
    assert_equal(layer_by_layer(predictor, items), directly(predictor, items), atol=0.05)


EXITS: list[tuple[Any, str, dict[str, Any], str]] = [
    ("classify", "each", {}, "confidence"),
    ("classify", "one", {"norm": "pre"}, "cumulative"),
    ("multilabel", "each", {"norm": "pre", "positions": "rotary"}, "patience"),
    ("regress", "one", {"share": "attention"}, "patience"),
    ("classify", "each", {"adapter_rank": 4}, "patience"),
]


@pytest.mark.parametrize(
    ("head", "exits", "encoder", "criterion", "engine"),
    [*((*case, "torch") for case in EXITS), *((*case, "onnx") for case in EXITS[1:3])],
)
def test_rows_leave_where_they_leave_in_a_direct_call(
    tmp_path: Path, head: Any, exits: str, encoder: dict[str, Any], criterion: Any, engine: str
) -> None:
    from litebert.tasks.encode.encode import encode
    from litebert.tasks.heads.heads import depth_logits
    from litebert.tasks.task import TaskCard

    checkpoint = checkpoint_of(tmp_path, head, exits, **encoder)
    assert checkpoint.tokenizer is not None
    assert checkpoint.task is not None
    predictor = opened(checkpoint, tmp_path, engine)
    verb = "regress" if head == "regress" else "classify"
    items: Items = [(verb, text_example(text)) for text in texts(24)]
    card = TaskCard.from_dict(checkpoint.task)
    inputs = encode(card, [item for _, item in items], checkpoint.tokenizer)
    predictor.engine.exit_rule = some_leave(criterion, head, depth_logits(checkpoint.model, inputs))
    items += [("embed", text) for text in texts(4, seed=1)]
    expected = directly(predictor, items)
    assert len({each.depth for each in expected[:24]}) > 1
    assert_equal(layer_by_layer(predictor, items), expected)


def test_one_call_for_all_depths_and_lengths(tmp_path: Path, monkeypatch: Any) -> None:
    predictor = opened(model_of(tmp_path, ("classify",)), tmp_path, "torch")
    engine, calls = predictor.engine, []
    layer = engine.layer

    def counted(number: int, states: Any, batch: Any, *, last: bool = False) -> Any:
        calls.append((len(states), states.shape[1], last))
        return layer(number, states, batch, last=last)

    monkeypatch.setattr(engine, "layer", counted)
    runner = Depthwise(engine)
    ids = [np.full(length, 7) for length in (12, 10, 12, 60)]
    runner.admit([Row("first", ids[0])])
    assert runner.tick() == []
    runner.admit([Row("second", ids[1]), Row("third", ids[2], needed=np.zeros(1, int))])
    runner.admit([Row("long", ids[3])])
    assert runner.tick() == []
    # the long row would be padding for the others
    assert calls == [(1, 12, False), (1, 60, False), (3, 12, False)]
    calls.clear()
    ended = [each for _ in range(3) for each in runner.tick()]
    owners = [row.owner for each in ended for row in each.rows]  # type: ignore[union-attr]
    assert sorted(owners) == ["first", "long", "second", "third"]
    assert owners[0] == "first"
    assert len(runner) == 0
    # the last layer of the row that needs one column is a call of its own
    assert [call for call in calls if call[2]] == [(1, 12, True)]
    assert all(rows * width <= engine.batch_tokens for rows, width, _ in calls)


def test_what_joins_costs_little_padding(tmp_path: Path) -> None:
    predictor = opened(model_of(tmp_path, ("classify",)), tmp_path, "torch")
    runner = Depthwise(predictor.engine)
    draw = random.Random(0)
    rows = [Row(None, np.zeros(draw.randint(3, 64), int)) for _ in range(200)]
    groups = runner._cut(rows)
    assert sorted(map(id, rows)) == sorted(id(row) for group in groups for row in group)
    for group in groups:
        longest = max(map(len, group))
        assert sum(longest - len(row) for row in group) <= depthwise.CALL_TOKENS
        assert longest * len(group) <= predictor.engine.batch_tokens
    assert len(groups) < 40


def test_a_plan_tells_whether_depths_can_share_a_call(tmp_path: Path) -> None:
    alone = {"attention shared", "ffn shared", "unshared", "adapters", "split adapters"}
    for plan, changes in PLANS.items():
        config = model_of(tmp_path, ("classify",), **changes).model.config
        assert shares_layers(config.encoder) == (plan not in alone), plan
        assert all(can_continue(config, verb) for verb in supported_verbs(config, {}))
    reversible = model_of(tmp_path, ("classify",), norm="pre", reversible=True).model.config
    assert not can_continue(reversible, "embed")


def test_dropped_inputs_are_computed_no_more(tmp_path: Path, monkeypatch: Any) -> None:
    predictor = opened(model_of(tmp_path, ("classify",)), tmp_path, "torch")
    continuous = Continuous(predictor)
    items = [("embed", text) for text in texts(6)]
    for ticket, (verb, item) in enumerate(items):
        continuous.admit(verb, item, ticket)  # type: ignore[arg-type]
    continuous.tick()
    continuous.admit("embed", "a late one", "late")
    continuous.drop(lambda ticket: ticket in (0, 3, 4, "late"))
    assert len(continuous) == 3
    results = dict(pair for _ in range(4) for pair in continuous.tick())
    assert results.keys() == {1, 2, 5}
    expected = directly(predictor, items)
    for ticket, result in results.items():
        assert_equal(result, expected[ticket])


def test_a_row_that_an_engine_refuses_fails_alone(tmp_path: Path, monkeypatch: Any) -> None:
    predictor = opened(model_of(tmp_path, ("classify",)), tmp_path, "torch")
    engine = predictor.engine
    layer, start = engine.layer, engine.start

    def refuse(method: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            batch = args[-1]
            if (batch.arrays["token_ids"] == 9).any():
                raise CheckpointError("not this one")
            return method(*args, **options)

        return run

    for at in (0, 1):  # where it is embedded, or in its first layer
        monkeypatch.setattr(engine, "start", start if at else refuse(start))
        monkeypatch.setattr(engine, "layer", refuse(layer))
        runner = Depthwise(engine)
        runner.admit(Row(number, np.array([2, number, 3])) for number in range(7, 12))
        ended = [each for _ in range(9) for each in runner.tick()]
        assert len(runner) == 0
        (failure,) = (each for each in ended if isinstance(each, Failed))
        assert failure.row.owner == 9
        assert str(failure.error) == "not this one"
        done = [row.owner for each in ended if not isinstance(each, Failed) for row in each.rows]
        assert sorted(done) == [7, 8, 10, 11]


def test_an_input_that_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    predictor = opened(model_of(tmp_path, ("masked",)), tmp_path, "torch")
    continuous = Continuous(predictor)
    with pytest.raises(DataError, match=r"there is no \[MASK\] in the text"):
        continuous.admit("fill", "nothing to fill", 0)
    assert len(continuous) == 0


def test_an_input_fails_with_any_of_its_rows(tmp_path: Path, monkeypatch: Any) -> None:
    predictor = opened(model_of(tmp_path, ("tag", "regress")), tmp_path, "torch")
    continuous = Continuous(predictor)
    continuous.admit("tag", tag_example(" ".join(["the baker sings"] * 60)), "windows")
    continuous.admit("regress", text_example("the baker sings"), "other")
    assert len(continuous) > 2

    def fail(*args: Any) -> Any:
        raise CheckpointError("no head")

    head = predictor.engine.head
    monkeypatch.setattr(
        predictor.engine,
        "head",
        lambda batch, states: fail() if batch.head == "tag" else head(batch, states),
    )
    results = dict(pair for _ in range(6) for pair in continuous.tick())
    assert str(results["windows"]) == "no head"
    assert results["other"].value == pytest.approx(
        next(iter(predictor.predict([text_example("the baker sings")], kind="regress"))).value,  # type: ignore[union-attr]
        abs=1e-5,
    )
    assert len(continuous) == 0


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    checkpoint = model_of(tmp_path, HEADS)
    for weight in checkpoint.model.parameters():
        weight.data *= 1e30
    predictor = opened(checkpoint, tmp_path, "torch")
    continuous, items = Continuous(predictor), mixed_items(8)
    for ticket, (verb, item) in enumerate(items):
        continuous.admit(verb, item, ticket)
    results = dict(pair for _ in range(6) for pair in continuous.tick())
    assert sorted(results) == list(range(8))
    for (verb, item), result in zip(items, map(results.get, range(8)), strict=True):
        with pytest.raises(CheckpointError, match="not a number: its weights are too large"):
            directly(predictor, [(verb, item)])
        assert str(result).startswith("what the model computes is not a number"), verb


def test_a_rule_remembers_each_row() -> None:
    from litebert.tasks.decode.exits import judge, new_memory

    rule = ExitRule(criterion="patience", threshold=2.0)
    logits = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)
    memory = new_memory("classify", logits)
    steps = []
    for flipped in (False, False, False, True):
        leaves, memory = judge(rule, "classify", logits[::-1] if flipped else logits, memory)
        steps.append(leaves.tolist())
    assert steps == [[False] * 2, [False] * 2, [True] * 2, [False] * 2]
    leaves, _ = judge(rule, "classify", logits, memory[[1]].repeat(2, 0))
    assert not leaves.any()
