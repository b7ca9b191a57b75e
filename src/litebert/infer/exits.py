"""Early exit in batches: examples and a rule in; predictions and their depths out. No torch.

After every layer the exit's head reads the first states, rows that the rule lets go leave the
batch, and the others go on without them. A row's result does not depend on who left: a row that
stays to the end gets the answer of the full depth.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from litebert.config import EXIT_HEADS, ModelConfig
from litebert.errors import ConfigError
from litebert.infer.engine import Engine
from litebert.packing import HostBatch, budget_batches
from litebert.shapes import Bool
from litebert.tasks.decode.decode import Batches, Outputs, Query, decode
from litebert.tasks.decode.exits import CRITERIA, ExitRule, Leaving
from litebert.tasks.encode.encode import encode
from litebert.tasks.examples import TaskExample
from litebert.tasks.predictions import Prediction
from litebert.tasks.task import TaskCard


def check_exits(config: ModelConfig) -> None:
    """Refuse a model that no text can leave early."""
    if not any(head.exits != "none" for head in config.heads):
        raise ConfigError(
            "this model has no exits, so every text takes all its layers; fine-tune one with "
            "--exits each"
        )


def make_rule(
    config: ModelConfig, card: TaskCard | None, criterion: str, threshold: float | None
) -> ExitRule:
    """The rule of a model; its threshold is the calibrated one unless one is given."""
    check_exits(config)
    if criterion not in CRITERIA:
        raise ConfigError(f"exit is one of {', '.join(CRITERIA)}; got {criterion!r}")
    stored = {} if card is None else card.exits.get(criterion, {})
    if threshold is None and "threshold" not in stored:
        there = "" if card is None else ", ".join(card.exits)
        example = "4" if criterion == "patience" else "0.95"
        raise ConfigError(
            f"no threshold is stored for {criterion!r} (there are: {there or 'none'}); give one, "
            f"such as --threshold {example}"
        )
    rule = ExitRule(
        criterion=criterion,
        threshold=stored["threshold"] if threshold is None else threshold,
        # cards of earlier versions have it beside a threshold alone
        tolerance=stored.get("tolerance", 0.0 if card is None else card.exit_tolerance),
        label_threshold=0.5 if card is None else card.label_threshold,
    )
    for head in config.heads:
        if head.exits != "none":
            rule.check_head(head.kind)
            if head.kind == "regress" and not rule.tolerance:
                raise ConfigError(
                    "the model's task.json has no tolerance within which numbers count as the "
                    "same, so that no text would leave early; fine-tune it again with --exits"
                )
    return rule


def predict_early(
    engine: Engine, rule: ExitRule, card: TaskCard, examples: Sequence[TaskExample]
) -> list[Prediction]:
    """One prediction for each example, in order, with its depth."""
    card.check_fits(engine.config)
    inputs = encode(card, examples, engine.tokenizer)
    plan = budget_batches(inputs.lengths, tokens=engine.batch_tokens, sizes=inputs.num_rows)

    def batches() -> Batches:
        for units in plan:
            batch = inputs.batch(units).padded()
            yield units, batch, _run_early(engine, rule, batch)

    return decode(Query(card=card, inputs=inputs, examples=examples, batches=batches()))


def _run_early(engine: Engine, rule: ExitRule, batch: HostBatch) -> Outputs:
    """The logits with which each row of a batch leaves, and after how many layers."""
    assert batch.head in EXIT_HEADS
    rows, last = len(batch.arrays["token_ids"]), len(engine.config.encoder.plan())
    left, leaving = np.arange(rows), Leaving(rule, batch.head)
    depths, logits = np.full(rows, last), None
    states = engine.start(batch)
    for depth in range(1, last + 1):
        states = engine.layer(depth - 1, states, batch, last=depth == last)
        read = engine.exit(depth, batch, engine.finish(states[:, :1]))
        if logits is None:
            logits = np.zeros((rows, read.shape[1]), np.float32)
        leaves = leaving.step(read) if depth < last else np.ones(len(left), bool)
        logits[left[leaves]], depths[left[leaves]] = read[leaves], depth
        left = left[~leaves]
        if not len(left):
            break
        if leaves.any():
            states, batch = states[~leaves], _rows(batch, ~leaves)
    assert logits is not None
    return Outputs(logits=logits, depths=depths)


def _rows(batch: HostBatch, stay: Bool[np.ndarray, " rows"]) -> HostBatch:
    """Some rows of a batch of padded rows."""
    seq = batch.arrays["token_ids"].shape[1]
    arrays = {
        name: array[stay]
        for name, array in batch.arrays.items()
        if name in ("token_ids", "segment_ids", "mask")
    }
    arrays["needed"] = (np.arange(int(stay.sum())) * seq)[:, None]
    return replace(batch, arrays=arrays)
