"""Class weights: what they are, and that the loss is the one written out by hand."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from litebert.errors import ConfigError
from litebert.model.batch import DeviceBatch
from litebert.recipes import FinetuneRecipe
from litebert.recipes.class_weights import ClassWeights
from litebert.tasks.encode.encode import encode
from litebert.tasks.heads.heads import task_losses
from litebert.text.tokenizer import Tokenizer
from litebert.train.finetune.evaluation import _chance_loss
from litebert.train.finetune.prepare import label_weights
from tests.helpers.task_examples import made_card, made_examples, made_model


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("kind", ["classify", "pair", "tag"])
def test_the_loss_is_the_weighted_sum_of_cross_entropies(
    tokenizer: Tokenizer, kind: Any, is_packed: bool
) -> None:
    card = made_card(kind)
    inputs, model = encode(card, made_examples(kind, 30), tokenizer), made_model(card, tokenizer)
    batch = inputs.batch(np.arange(len(inputs)))
    weights = torch.linspace(0.5, 3, len(card.task.labels))
    laid = DeviceBatch.of(batch.packed(longest=64) if is_packed else batch.padded())
    plain = DeviceBatch.of(batch.padded())
    model.requires_grad_(False)
    states = plain.states(model.encoder)
    if kind == "tag":
        logits = model.head("tag")(states.flatten(0, 1)[plain.head_inputs["words"]])
    else:
        logits = model.logits("classify", states.flatten(0, 1)[:, None])
    targets = plain.head_inputs["targets"]
    losses = -logits.float().log_softmax(-1)[range(len(targets)), targets]
    by_hand = sum(float(weights[t]) * float(x) for t, x in zip(targets, losses, strict=True))
    assert float(task_losses(model, laid, weights).loss) == pytest.approx(by_hand, rel=1e-4)
    assert float(task_losses(model, laid).loss) == pytest.approx(float(losses.sum()), rel=1e-4)
    assert by_hand != pytest.approx(float(losses.sum()), rel=1e-2)


def test_positives_of_several_labels_are_weighed(tokenizer: Tokenizer) -> None:
    card = made_card("classify", "multilabel")
    examples = made_examples("classify", 20)
    several = [
        replace(each, label=card.task.labels[: n % (len(card.task.labels) + 1)])  # type: ignore[call-arg]
        for n, each in enumerate(examples)
    ]
    inputs, model = encode(card, several, tokenizer), made_model(card, tokenizer)
    model.requires_grad_(False)
    batch = DeviceBatch.of(inputs.batch(np.arange(len(inputs))).padded())
    logits = model.logits("multilabel", batch.states(model.encoder).flatten(0, 1)[:, None]).double()
    y, weights = batch.head_inputs["targets"].double(), torch.linspace(0.5, 4, logits.shape[1])
    by_hand = -(weights * y * logits.sigmoid().log() + (1 - y) * (1 - logits.sigmoid()).log()).mean(
        1
    )
    loss = task_losses(model, batch, weights).loss
    assert float(loss) == pytest.approx(float(by_hand.sum()), rel=1e-5)
    balanced = label_weights(ClassWeights("balanced"), card.task, inputs)
    assert balanced is not None
    assert inputs.targets is not None
    positives = inputs.targets.sum(0)
    assert balanced * positives == pytest.approx(len(several) - positives)
    chance = _chance_loss(inputs, balanced)
    # positives and negatives weigh alike, so that the best guess is one half
    assert chance == pytest.approx(float((2 * (1 - positives / 20)).mean()) * math.log(2))


def test_balanced_is_that_of_scikit_learn_and_weights_have_the_mean_one(
    tokenizer: Tokenizer,
) -> None:
    card = made_card("classify")
    inputs = encode(card, made_examples("classify", 30), tokenizer)
    assert inputs.targets is not None
    balanced = label_weights(ClassWeights("balanced"), card.task, inputs)
    classes = np.arange(len(card.task.labels))
    assert balanced == pytest.approx(
        compute_class_weight("balanced", classes=classes, y=inputs.targets)
    )
    # guessing has the loss of as many equal labels
    assert _chance_loss(inputs, balanced) == pytest.approx(math.log(len(classes)))
    first, last = card.task.labels[0], card.task.labels[-1]
    named = label_weights(ClassWeights.of({last: 6}), card.task, inputs)
    assert named is not None
    assert named[-1] / named[0] == pytest.approx(6)
    assert named[inputs.targets].mean() == pytest.approx(1)
    assert label_weights(ClassWeights(), card.task, inputs) is None
    with pytest.raises(ConfigError, match=rf"no label 'nobody' for a class weight; .*{first}"):
        label_weights(ClassWeights.of({"nobody": 2}), card.task, inputs)
    card = made_card("regress")
    inputs = encode(card, made_examples("regress"), tokenizer)
    with pytest.raises(ConfigError, match="class weights are for tasks with labels"):
        label_weights(ClassWeights("balanced"), card.task, inputs)


def test_weights_are_written_in_flags_json_and_python() -> None:
    assert ClassWeights.parse(["balanced"]) == ClassWeights("balanced")
    named = ClassWeights.parse(["spam=3", "a=b=0.5"])
    assert named == ClassWeights.of({"spam": 3, "a=b": 0.5})
    assert str(named) == "spam=3 a=b=0.5"
    recipe = FinetuneRecipe(task="classify", steps=1)
    for value in ("none", "balanced", {"spam": 3.0, "ham": 1.0}):
        changed = recipe.changed({"class_weights": value})
        assert FinetuneRecipe.from_json(changed.to_json()) == changed
        assert json.loads(changed.to_json())["class_weights"] == value
        assert (changed.fingerprint == recipe.fingerprint) == (value == "none")
    for wrong, message in (
        (["heavy"], "class weights are none, balanced or LABEL=WEIGHT …; got 'heavy'"),
        (["a=1", "b"], "a class weight is written LABEL=WEIGHT; got 'b'"),
        (["a=x"], "a class weight is written LABEL=WEIGHT; got 'a=x'"),
        (["a=-1"], "the weight of a label is a number above 0; got -1.0 for 'a'"),
    ):
        with pytest.raises(ConfigError, match=message):
            ClassWeights.parse(wrong)
