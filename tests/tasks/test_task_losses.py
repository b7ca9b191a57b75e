"""Losses are what the formulas say of each unit alone, and add up."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.errors import DataError
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.tasks.encode.encode import encode
from litebert.tasks.encode.inputs import TaskBatch
from litebert.tasks.heads.head import TaskSums
from litebert.tasks.heads.heads import task_losses
from litebert.text.tokenizer import Tokenizer
from tests.helpers.task_examples import CASES, made_card, made_examples, made_model


def lay(batch: TaskBatch) -> DeviceBatch:
    return DeviceBatch.of(batch.padded())


def alone(model: Model, batch: DeviceBatch) -> tuple[Tensor, int]:
    """The loss of one unit, written out from the definitions; and how many of its targets were
    guessed."""
    assert batch.head is not None
    inputs = batch.head_inputs
    states = model.encoder(
        token_ids=batch.token_ids, segment_ids=batch.segment_ids, mask=batch.mask
    )
    head, right = model.head(batch.head), inputs["targets"]
    if batch.head == "joint_span":
        inside = inputs["allowed"][0].nonzero()[:, 0]
        first, last = (int((inside == place).nonzero()) for place in right[0])
        logits = head(states, inputs["allowed"], right[:, 0])
        start, end = logits.start[0, inside].log_softmax(0), logits.end[0, inside].log_softmax(0)
        null = logits.unanswerable.sigmoid()
        answered = torch.log(null if right[0, 0] == 0 else 1 - null).sum()
        guessed = start.argmax() == first and end.argmax() == last
        return -(start[first] + end[last]) / 2 - 0.5 * answered, int(guessed)
    if batch.head == "span":
        inside = inputs["allowed"][0].nonzero()[:, 0]
        first, last = (int((inside == place).nonzero()) for place in right[0])
        start, end = head(states)[0, inside].log_softmax(0).T
        return -(start[first] + end[last]) / 2, int(
            start.argmax() == first and end.argmax() == last
        )
    if batch.head == "tag":
        logits = head(states)[0, inputs["words"]].log_softmax(1)
        return -logits[range(len(right)), right].sum(), int((logits.argmax(1) == right).sum())
    logits = head(model.encoder.pool(states))
    if batch.head == "multilabel":
        likelihoods = torch.where(right[0] == 1, logits[0].sigmoid(), (-logits[0]).sigmoid())
        return -likelihoods.log().mean(), int(((logits[0] >= 0) == right[0].bool()).all())
    if batch.head == "regress":
        return (logits[0, 0] - right[0]) ** 2, 0
    logits = logits[:, 0] if batch.head == "choose" else logits[0]
    return -logits.log_softmax(0)[right[0]], int(logits.argmax() == right[0])


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_a_batch_is_the_sum_of_its_units(tokenizer: Tokenizer, kind: Any, head: Any) -> None:
    card = made_card(kind, head)
    inputs, model = encode(card, made_examples(kind), tokenizer), made_model(card, tokenizer)
    batch = inputs.batch(np.arange(len(inputs)))
    sums = task_losses(model, lay(batch))
    told = [alone(model, lay(inputs.batch(np.array([unit])))) for unit in range(len(inputs))]
    torch.testing.assert_close(
        sums.loss, torch.stack([loss.reshape(()) for loss, _ in told]).sum(), rtol=1e-5, atol=1e-5
    )
    assert sums.correct == sum(correct for _, correct in told)


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_microbatches_add_up(tokenizer: Tokenizer, kind: Any, head: Any) -> None:
    card = made_card(kind, head)
    inputs, model = encode(card, made_examples(kind), tokenizer), made_model(card, tokenizer)
    batch = inputs.batch(np.arange(len(inputs)))
    full = gradients(model, [batch])
    parts = gradients(model, [batch.rows(at, at + 5) for at in range(0, len(batch), 5)])
    for one, other in zip(full, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert any(gradient.abs().sum() > 0 for gradient in full)


def gradients(model: Model, batches: list[TaskBatch]) -> list[Tensor]:
    """Of all parameters, and the sums."""
    model.zero_grad()
    total: TaskSums | None = None
    for batch in batches:
        sums = task_losses(model, lay(batch))
        sums.loss.backward()  # type: ignore[no-untyped-call]
        total = sums.detach() if total is None else total + sums.detach()
    assert total is not None
    actual = [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]
    return [*actual, *total.numbers().values()]


def test_an_option_that_is_not_there_takes_no_part(tokenizer: Tokenizer) -> None:
    card = made_card("choose")
    inputs, model = (
        encode(card, made_examples("choose", 30), tokenizer),
        made_model(card, tokenizer),
    )
    assert inputs.sizes is not None
    assert set(inputs.sizes.tolist()) == {2, 3, 4}
    same = [
        task_losses(model, lay(inputs.batch(np.flatnonzero(inputs.sizes == size)))).loss
        for size in (2, 3, 4)
    ]
    torch.testing.assert_close(
        task_losses(model, lay(inputs.batch(np.arange(30)))).loss, sum(same), rtol=1e-5, atol=1e-4
    )


def test_half_precision_is_summed_in_float(tokenizer: Tokenizer) -> None:
    for kind, head in CASES:
        card = made_card(kind, head)
        inputs, model = encode(card, made_examples(kind), tokenizer), made_model(card, tokenizer)
        batch = lay(inputs.batch(np.arange(len(inputs))))
        exact, rough = task_losses(model, batch), task_losses(model.bfloat16(), batch)
        assert rough.loss.dtype == torch.float32
        torch.testing.assert_close(rough.loss, exact.loss, rtol=0.05, atol=0.1)


def test_without_labels_there_is_nothing_to_learn(tokenizer: Tokenizer) -> None:
    card = made_card("tag")
    examples = made_examples("tag", 2)
    unlabeled = [type(example)(key=example.key, words=example.words) for example in examples]  # type: ignore[union-attr,call-arg]
    batch = lay(encode(card, unlabeled, tokenizer).batch(np.array([0])))
    with pytest.raises(
        DataError,
        match="these examples have no labels, so there is nothing to learn from; give a labeled",
    ):
        task_losses(made_model(card, tokenizer), batch)


def test_a_classifier_is_torch_cross_entropy(tokenizer: Tokenizer) -> None:
    card = made_card("pair")
    inputs, model = encode(card, made_examples("pair"), tokenizer), made_model(card, tokenizer)
    batch = lay(inputs.batch(np.arange(len(inputs))))
    states = model.encoder(
        token_ids=batch.token_ids, segment_ids=batch.segment_ids, mask=batch.mask
    )
    targets = batch.head_inputs["targets"]
    told = F.cross_entropy(model.logits("classify", states), targets) * len(targets)
    torch.testing.assert_close(task_losses(model, batch).loss, told)


def test_the_joint_loss_is_made_of_xlnets_parts(tokenizer: Tokenizer) -> None:
    """Hugging Face's modules with our weights; answerability reads the expected start state, as it
    does at prediction there."""
    from transformers.models.xlnet import modeling_xlnet as xlnet

    card = made_card("answer", "joint_span")
    inputs, model = encode(card, made_examples("answer"), tokenizer), made_model(card, tokenizer)
    batch, head = lay(inputs.batch(np.arange(len(inputs)))), model.head("joint_span")
    config = xlnet.XLNetConfig(
        d_model=32, n_head=4, layer_norm_eps=model.config.encoder.norm_epsilon
    )
    parts = (
        xlnet.XLNetPoolerStartLogits(config),
        xlnet.XLNetPoolerEndLogits(config),
        xlnet.XLNetPoolerAnswerClass(config),
    )
    ours = {
        "start": parts[0].dense,
        "end_dense": parts[1].dense_0,
        "end_norm": parts[1].LayerNorm,
        "end": parts[1].dense_1,
    }
    for name, theirs in (
        ours | {"answer_dense": parts[2].dense_0, "answer": parts[2].dense_1}
    ).items():
        theirs.load_state_dict(head.get_submodule(name).state_dict())
    states = model.encoder(
        token_ids=batch.token_ids, segment_ids=batch.segment_ids, mask=batch.mask
    )
    starts, ends = batch.head_inputs["targets"].T
    hidden = (~batch.head_inputs["allowed"]).float()
    start_logits = parts[0](states, p_mask=hidden)
    end_logits = parts[1](states, start_positions=starts, p_mask=hidden)
    expected = torch.einsum("blh,bl->bh", states, start_logits.softmax(-1))
    null = parts[2](states, start_states=expected, cls_index=torch.zeros_like(starts))
    means = (F.cross_entropy(start_logits, starts) + F.cross_entropy(end_logits, ends)) / 2
    told = means + 0.5 * F.binary_cross_entropy_with_logits(null, (starts == 0).float())
    torch.testing.assert_close(
        task_losses(model, batch).loss / len(starts), told, rtol=1e-5, atol=1e-5
    )
