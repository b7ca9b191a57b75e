"""What each layer does to a text: examples in; for each the distance that every layer moves its
states, and, of a model with exits, the answer at every depth, out. No torch.

Distances are those of the paper's Figure 1: L2 and cosine between the states that go into a layer
and those that come out, as means over the row's tokens. In a pre-norm encoder the states are those
of the residual stream, before the final norm.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from litebert.config import HeadKind
from litebert.errors import ConfigError
from litebert.infer.batches import padded_rows
from litebert.infer.depthwise import can_step
from litebert.infer.engine import Engine
from litebert.infer.exits import make_rule
from litebert.infer.formats import DIGITS, to_dict
from litebert.packing import HostBatch, budget_batches
from litebert.shapes import Bool, Float, Int
from litebert.tasks.decode.decode import Outputs, Query, decode
from litebert.tasks.decode.exits import ExitRule, exit_depths
from litebert.tasks.encode.encode import encode, encode_texts
from litebert.tasks.examples import TextExample
from litebert.tasks.predictions import Prediction
from litebert.tasks.task import TaskCard

if TYPE_CHECKING:
    from litebert.infer.predictor import Predictor

_READING = ("classify", "pair", "regress")
"""Verbs that read a text or a pair in one row."""
_LEAST_NORM = 1e-12


@dataclass(frozen=True, kw_only=True)
class Leave:
    """Where a text would leave by one criterion."""

    threshold: float
    depth: int
    """Layers after which it leaves; all of them where the criterion never holds."""


@dataclass(frozen=True, kw_only=True)
class LayerReading:
    """One text, layer by layer."""

    tokens: int
    """That the model read, special ones included."""
    l2: tuple[float, ...]
    """Of each layer, the mean distance between a token's states before and after it."""
    cosine: tuple[float, ...]
    """Of each layer, their mean cosine."""
    answers: tuple[Prediction, ...] = ()
    """After each layer; none where the model has no exits."""
    leaves: Mapping[str, Leave] | None = None
    """By criterion that is calibrated or in use."""

    def to_dict(self) -> dict[str, Any]:
        exits = None
        if self.answers:
            leaves = self.leaves or {}
            exits = {
                "answers": [to_dict(answer) for answer in self.answers],
                "leaves": {
                    criterion: {"threshold": leave.threshold, "depth": leave.depth}
                    for criterion, leave in leaves.items()
                },
            }
        return {
            "tokens": self.tokens,
            "l2": [round(value, DIGITS) for value in self.l2],
            "cosine": [round(value, DIGITS) for value in self.cosine],
            "exits": exits,
        }


def layer_card(predictor: "Predictor") -> TaskCard | None:
    """How texts become rows, the card whose head has exits first; None where no head reads whole
    texts."""
    heads = {head.kind for head in predictor.engine.config.heads if head.exits != "none"}
    cards = [predictor.cards[verb] for verb in _READING if verb in predictor.cards]
    with_exits = (card for card in cards if card.task.head in heads)
    return next(with_exits, cards[0] if cards else None)


def read_layers(predictor: "Predictor", examples: Sequence[TextExample]) -> list[LayerReading]:
    """One reading for each example, in order. Every layer is computed, whatever the rule."""
    engine, card = predictor.engine, layer_card(predictor)
    if not can_step(engine.config.encoder):
        raise ConfigError(
            "reversible layers carry two streams of states, whose distances are not measured; take "
            "a model without them"
        )
    if card is None:
        return _distances_of_texts(engine, examples)
    inputs = encode(card, examples, engine.tokenizer)
    has_exits = any(
        head.kind == card.task.head and head.exits != "none" for head in engine.config.heads
    )
    walks: list[_Walk | None] = [None] * len(examples)
    batch = None
    for units in budget_batches(inputs.lengths, tokens=engine.batch_tokens):
        batch = inputs.batch(units).padded()
        _put(walks, units, _walk(engine, batch, has_exits=has_exits))
    done = [walk for walk in walks if walk is not None]
    if not has_exits or batch is None:
        return [_reading(walk) for walk in done]
    logits = np.stack([walk.logits for walk in done if walk.logits is not None], axis=1)
    rows = np.arange(len(done))
    by_depth = [
        decode(
            Query(
                card=card,
                inputs=inputs,
                examples=examples,
                batches=[(rows, batch, Outputs(logits=each))],
            )
        )
        for each in logits
    ]
    leaves = _leaves(_rules(predictor), card.task.head, logits)
    return [
        _reading(walk, tuple(answers), {name: each[row] for name, each in leaves.items()})
        for row, (walk, answers) in enumerate(zip(done, zip(*by_depth, strict=True), strict=True))
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Walk:
    """One row through all layers."""

    tokens: int
    l2: Float[np.ndarray, " layers"]
    cosine: Float[np.ndarray, " layers"]
    logits: Float[np.ndarray, "layers outputs"] | None


def _distances_of_texts(engine: Engine, examples: Sequence[TextExample]) -> list[LayerReading]:
    """For an encoder whose heads read no whole texts: [CLS] text [SEP]."""
    if any(example.second is not None for example in examples):
        raise ConfigError("this model has no head that reads pairs; send single texts")
    rows = encode_texts(
        engine.tokenizer,
        [example.first for example in examples],
        max_length=engine.config.encoder.max_positions,
    )
    walks: list[_Walk | None] = [None] * len(rows)
    lengths = np.array([len(row) for row in rows], np.int64)
    for units in budget_batches(lengths, tokens=engine.batch_tokens):
        chosen = [rows[unit] for unit in units.tolist()]
        batch = padded_rows(chosen, None, pad_id=engine.tokenizer.pad_id)
        _put(walks, units, _walk(engine, batch, has_exits=False))
    return [_reading(walk) for walk in walks if walk is not None]


def _walk(engine: Engine, batch: HostBatch, *, has_exits: bool) -> list[_Walk]:
    """Every row of a batch through every layer."""
    num_layers = len(engine.config.encoder.plan())
    shape = batch.arrays["token_ids"].shape
    mask = batch.arrays.get("mask", np.ones(shape, bool))
    l2, cosine, logits = [], [], []
    states = engine.start(batch)
    before = engine.to_array(states)
    for number in range(num_layers):
        states = engine.layer(number, states, batch)
        after = engine.to_array(states)
        distances, cosines = _moved(before, after, mask)
        l2.append(distances)
        cosine.append(cosines)
        if has_exits:
            logits.append(engine.exit(number + 1, batch, engine.finish(states[:, :1])))
        before = after
    return [
        _Walk(
            tokens=int(mask[row].sum()),
            l2=np.array([each[row] for each in l2]),
            cosine=np.array([each[row] for each in cosine]),
            logits=np.stack([each[row] for each in logits]) if has_exits else None,
        )
        for row in range(shape[0])
    ]


def _moved(
    before: Float[np.ndarray, "rows seq hidden"],
    after: Float[np.ndarray, "rows seq hidden"],
    mask: Bool[np.ndarray, "rows seq"],
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """L2 distance and cosine of each row's states, means over its tokens."""
    counts = mask.sum(1)
    distances = np.linalg.norm(after - before, axis=2)
    norms = np.linalg.norm(before, axis=2) * np.linalg.norm(after, axis=2)
    cosines = (before * after).sum(2) / np.maximum(norms, _LEAST_NORM)
    return (distances * mask).sum(1) / counts, (cosines * mask).sum(1) / counts


def _rules(predictor: "Predictor") -> list[ExitRule]:
    """The rule in use and the calibrated ones, one for each criterion."""
    card, in_use = predictor.card, predictor.engine.exit_rule
    criteria = () if card is None else card.exits
    rules = {name: make_rule(predictor.engine.config, card, name, None) for name in criteria}
    if in_use is not None:
        rules[in_use.criterion] = in_use
    return list(rules.values())


def _leaves(
    rules: Sequence[ExitRule], head: HeadKind, logits: Float[np.ndarray, "depths rows outputs"]
) -> dict[str, list[Leave]]:
    """By criterion, where each row leaves."""
    return {
        rule.criterion: [
            Leave(threshold=rule.threshold, depth=depth)
            for depth in exit_depths(rule, head, logits).tolist()
        ]
        for rule in rules
    }


def _put(walks: list[_Walk | None], units: Int[np.ndarray, " units"], some: list[_Walk]) -> None:
    for unit, walk in zip(units.tolist(), some, strict=True):
        walks[unit] = walk


def _reading(
    walk: _Walk,
    answers: tuple[Prediction, ...] = (),
    leaves: Mapping[str, Leave] | None = None,
) -> LayerReading:
    return LayerReading(
        tokens=walk.tokens,
        l2=tuple(walk.l2.tolist()),
        cosine=tuple(walk.cosine.tolist()),
        answers=answers,
        leaves=leaves,
    )
