"""Early exit in batches: every engine lets rows leave where the rule says, rows that stay get the
full depth's answer, and layers are saved."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert import cli
from litebert.config import HeadKind, ModelConfig
from litebert.errors import ConfigError
from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.predictor import load
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.decode.exits import ExitRule, exit_depths
from litebert.tasks.encode.encode import encode
from litebert.tasks.examples import TextExample
from litebert.tasks.heads.heads import depth_logits
from litebert.tasks.task import Task, TaskCard
from tests.helpers.models import LABELS, texts
from tests.infer.test_export import model_of

ENGINES = ("torch", "onnx", "openvino")
CALIBRATED = {"confidence": {"threshold": 0.6, "tolerance": 0.0}}


def card_of(head: HeadKind, **changes: Any) -> TaskCard:
    kind: Any = "regress" if head == "regress" else "classify"
    labels = () if head == "regress" else LABELS
    task = Task(name=kind, kind=kind, scores=("accuracy",), labels=labels, head=head)
    return TaskCard(task=task, max_length=64, **changes)


def checkpoint_of(folder: Path, head: HeadKind, exits: Any, **encoder: Any) -> Checkpoint:
    base = model_of(folder, (head,), **encoder)
    heads = tuple(replace(each, exits=exits) for each in base.model.config.heads)
    model = Model(ModelConfig(encoder=base.model.config.encoder, heads=heads)).eval()
    calibrated = {"exits": CALIBRATED} if head == "classify" else {"exit_tolerance": 0.1}
    card = card_of(head, **calibrated)
    return Checkpoint(model=model, tokenizer=base.tokenizer, task=card.to_dict())


CASES: list[tuple[HeadKind, str, dict[str, Any], str]] = [
    ("classify", "each", {}, "confidence"),
    ("classify", "one", {"norm": "pre"}, "cumulative"),
    ("multilabel", "each", {"norm": "pre", "positions": "rotary"}, "patience"),
    ("regress", "one", {"share": "attention"}, "patience"),
]
PROBABILITIES = [1 - 0.8**power for power in range(1, 80)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("head", "exits", "encoder", "criterion"), CASES)
def test_rows_leave_where_the_rule_says(
    tmp_path: Path,
    head: Any,
    exits: Any,
    encoder: dict[str, Any],
    criterion: Any,
    engine: Any,
) -> None:
    checkpoint = checkpoint_of(tmp_path, head, exits, **encoder)
    assert checkpoint.tokenizer is not None
    assert checkpoint.task is not None
    folder = checkpoint.save(tmp_path / "model")
    if engine != "torch":
        export_folder(checkpoint, tmp_path / "out", ExportOptions(runtime=engine))
        folder = tmp_path / "out"
    predictor = load(folder, device="cpu", engine=engine, batch_tokens=256)
    rows = [TextExample(key=str(n), first=text) for n, text in enumerate(texts(24))]
    full = list(predictor.predict(rows))
    card = TaskCard.from_dict(checkpoint.task)
    logits = depth_logits(checkpoint.model, encode(card, rows, checkpoint.tokenizer))
    rule = some_leave(criterion, head, logits)
    predictor.engine.exit_rule = rule
    early = list(predictor.predict(rows))
    depths = [each.depth for each in early]  # type: ignore[union-attr]
    assert depths == exit_depths(rule, head, logits).tolist()
    for here, there in zip(early, full, strict=True):
        if here.depth == 4:  # type: ignore[union-attr]
            assert numbers(here) == pytest.approx(numbers(there), abs=1e-4)
    never = "patience" if head == "regress" else criterion
    predictor.engine.exit_rule = ExitRule(
        criterion=never, threshold=99.0 if never == "patience" else 1.0
    )
    for here, there in zip(predictor.predict(rows), full, strict=True):
        assert numbers(here) == pytest.approx(numbers(there), abs=1e-4)


def some_leave(criterion: Any, head: HeadKind, logits: np.ndarray) -> ExitRule:
    """A rule by which some rows leave early and some do not."""
    tolerance = float(np.median(np.abs(np.diff(logits, axis=0)))) if head == "regress" else 0.0
    for threshold in [1.0, 2.0] if criterion == "patience" else PROBABILITIES:
        rule = ExitRule(criterion=criterion, threshold=threshold, tolerance=tolerance)
        depths = exit_depths(rule, head, logits).tolist()
        if 4 in depths and len(set(depths)) > 1:
            return rule
    raise AssertionError("every row leaves at the same depth")


def numbers(prediction: Any) -> list[float]:
    if hasattr(prediction, "value"):
        return [prediction.value]
    return list(prediction.probabilities.values())


def test_finished_rows_are_not_computed_on(tmp_path: Path) -> None:
    folder = checkpoint_of(tmp_path, "classify", "one").save(tmp_path / "model")
    predictor = load(folder, device="cpu", exit="patience", threshold=1.0)
    layer, computed = predictor.engine.layer, 0

    def counted(number: int, states: Any, batch: Any, *, last: bool = False) -> Any:
        nonlocal computed
        assert len(states) == len(batch.arrays["token_ids"])
        computed += len(states)
        return layer(number, states, batch, last=last)

    predictor.engine.layer = counted  # type: ignore[method-assign]
    found = predictor.classify(texts(24))
    assert computed == sum(each.depth or 0 for each in found) < 4 * 24


def test_the_calibrated_threshold_is_the_default(tmp_path: Path) -> None:
    folder = checkpoint_of(tmp_path, "classify", "each").save(tmp_path / "model")
    calibrated = load(folder, device="cpu", exit="confidence")
    named = load(folder, device="cpu", exit="confidence", threshold=0.6)
    plain = load(folder, device="cpu")
    assert calibrated.classify(texts(6)) == named.classify(texts(6))
    assert calibrated.fingerprint == named.fingerprint != plain.fingerprint
    assert plain.classify("the old fox .").depth is None
    plain.leave_early("confidence")
    assert plain.fingerprint == named.fingerprint
    with pytest.raises(ConfigError, match=r"stored for 'patience' \(there are: confidence\); give"):
        load(folder, device="cpu", exit="patience")
    with pytest.raises(ConfigError, match="exit is one of patience, confidence, cumulative; got"):
        load(folder, device="cpu", exit="luck", threshold=0.5)
    with pytest.raises(ConfigError, match="a threshold is of an exit, and none is given"):
        load(folder, device="cpu", threshold=0.9)


def test_regress_tells_after_how_many_layers_a_text_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint_of(tmp_path, "regress", "one").save(tmp_path / "model")
    early = ["--model", str(folder), "--exit", "patience", "--threshold", "1", "--json"]
    assert cli.run(["regress", "the old fox .", *early]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert 1 <= answer["depth"] <= 4
    predictor = load(folder, exit="patience", threshold=1.0)
    assert answer["value"] == pytest.approx(predictor.regress("the old fox ."), abs=1e-5)


def test_numbers_leave_within_the_tolerance_of_the_model(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, "regress", "one")
    never = checkpoint_of(tmp_path / "never", "regress", "one")
    predictor = load(checkpoint.save(tmp_path / "model"), exit="patience", threshold=1.0)
    depths = {
        each.depth
        for each in predictor.predict(  # type: ignore[union-attr]
            [TextExample(key="", first=text) for text in texts(24)]
        )
    }
    assert min(depths) < 4  # type: ignore[type-var]
    bare = replace(never, task=card_of("regress").to_dict()).save(tmp_path / "bare")
    with pytest.raises(
        ConfigError, match=r"no tolerance within which numbers .* fine-tune it again"
    ):
        load(bare, exit="patience", threshold=1.0)
    stored = {"patience": {"threshold": 2.0, "tolerance": 0.1}}  # as earlier versions have it
    old = replace(never, task=card_of("regress", exits=stored).to_dict()).save(tmp_path / "old")
    rule = load(old, exit="patience").engine.exit_rule
    assert rule is not None
    assert (rule.threshold, rule.tolerance) == (2.0, 0.1)


def test_a_model_without_exits_says_how_to_get_them(tmp_path: Path) -> None:
    folder = checkpoint_of(tmp_path, "classify", "none").save(tmp_path / "model")
    with pytest.raises(
        ConfigError, match=r"this model has no exits, .* fine-tune one with --exits"
    ):
        load(folder, device="cpu", exit="confidence")


def test_cards_with_damaged_exits_are_refused() -> None:
    data = card_of("classify", exits=CALIBRATED).to_dict()
    assert TaskCard.from_dict(data).exits == CALIBRATED
    with pytest.raises(ConfigError, match="exits are numbers by criterion of early exit; got"):
        TaskCard.from_dict(data | {"exits": {"confidence": 0.6}})
    assert "exits" not in card_of("classify").to_dict()
