"""The loss over all depths is the plain formula, value and gradients, in float64; every depth's
logits are those of a model that ends there."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.config import HeadConfig, ModelConfig
from litebert.errors import ConfigError
from litebert.model.batch import DeviceBatch
from litebert.model.count import count_model
from litebert.model.model import Model
from litebert.tasks.encode.encode import encode
from litebert.tasks.heads.heads import decoded, depth_logits, exit_losses, predict
from litebert.text.tokenizer import Tokenizer
from tests.helpers.task_examples import made_card, made_examples, made_model

KINDS: list[Any] = [
    ("classify", "classify"),
    ("pair", "multilabel"),
    ("regress", "regress"),
]
DISTILLATION, TEMPERATURE = 0.7, 1.5


def with_exits(model: Model, exits: Any, **encoder: Any) -> Model:
    torch.manual_seed(1)
    config = model.config
    heads = tuple(replace(head, exits=exits, dropout=0.0) for head in config.heads)
    return Model(ModelConfig(encoder=replace(config.encoder, **encoder), heads=heads)).eval()


def per_unit(head: str, logits: Tensor, targets: Tensor) -> Tensor:
    if head == "classify":
        return -logits.log_softmax(-1)[range(len(targets)), targets]
    if head == "multilabel":
        right = targets * F.logsigmoid(logits) + (1 - targets) * F.logsigmoid(-logits)
        return -right.mean(-1)
    return (logits[:, 0] - targets) ** 2


def apart(head: str, logits: Tensor, teacher: Tensor) -> Tensor:
    if head == "regress":
        return (logits[:, 0] - teacher[:, 0]) ** 2
    ours, theirs = logits / TEMPERATURE, teacher / TEMPERATURE
    if head == "classify":
        p, q = theirs.softmax(-1), ours.softmax(-1)
        return TEMPERATURE**2 * (p * (p / q).log()).sum(-1)
    p, q = theirs.sigmoid(), ours.sigmoid()
    return TEMPERATURE**2 * (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).mean(-1)


def written_out(model: Model, batch: DeviceBatch, head: str) -> Tensor:
    """From the definitions: the states of all layers, each depth's head, weights 1, 2, 3 …"""
    states = model.encoder.all_states(
        token_ids=batch.token_ids,
        segment_ids=batch.segment_ids,
        mask=batch.mask,  # type: ignore[arg-type]
    )[1:]
    states = [*(model.encoder.norm(each) for each in states[:-1]), states[-1]]
    last = len(states)
    logits = []
    for depth, each in enumerate(states, start=1):
        first = each[:, 0]
        if model.exits and depth < last:
            own: Any = model.exits[head][depth - 1]  # type: ignore[index]
            logits.append(own.output.output(torch.tanh(own.pooler(first))))
        else:
            assert model.encoder.pooler is not None
            pooled = torch.tanh(model.encoder.pooler(first))
            logits.append(model.heads[head].output(pooled))  # type: ignore[operator]
    targets = batch.head_inputs["targets"]
    total = torch.zeros((), dtype=torch.float64)
    for depth, each in enumerate(logits, start=1):
        losses = per_unit(head, each.double(), targets)
        if depth < last:
            teacher = logits[-1].detach().double()
            losses = losses + DISTILLATION * apart(head, each.double(), teacher)
        total = total + depth * losses.sum()
    return total / sum(range(1, last + 1))


@pytest.mark.parametrize("exits", ["one", "each"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize(("kind", "head"), KINDS)
def test_the_loss_and_its_gradients_are_the_formula(
    tokenizer: Tokenizer, kind: Any, head: Any, norm: Any, exits: Any
) -> None:
    card = made_card(kind, head)
    model = with_exits(made_model(card, tokenizer), exits, norm=norm, num_layers=3).double()
    inputs = encode(card, made_examples(kind), tokenizer)
    task_batch = inputs.batch(np.arange(len(inputs)))
    padded = DeviceBatch.of(task_batch.padded())
    packed = DeviceBatch.of(task_batch.packed(longest=32, bucketed=True))
    named = dict(model.named_parameters())

    def gradients(loss: Tensor) -> dict[str, Tensor]:
        found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        return {
            name: torch.zeros_like(named[name]) if each is None else each
            for name, each in zip(named, found, strict=True)
        }

    wanted = written_out(model, padded, head)
    expected = gradients(wanted)
    assert expected["encoder.feed_forwards.0.inner.weight"].abs().max() > 0
    for batch in (padded, packed):
        ours = exit_losses(model, batch, distillation=DISTILLATION, temperature=TEMPERATURE).loss
        # logits are float32 in the losses
        torch.testing.assert_close(ours.double(), wanted, rtol=1e-5, atol=1e-6)
        actual = gradients(ours)
        for name, each in expected.items():
            bound = 1e-4 * float(each.abs().max()) + 1e-6
            torch.testing.assert_close(actual[name], each, rtol=1e-4, atol=bound, msg=name)


def test_shared_layers_get_gradients_from_every_depth(tokenizer: Tokenizer) -> None:
    """Without the last depth's loss there is a gradient still, and recomputing changes none."""
    card = made_card("classify")
    plain = with_exits(made_model(card, tokenizer), "each", num_layers=3)
    saving = Model(plain.config, checkpoint_every=2)
    saving.load_state_dict(plain.state_dict())
    inputs = encode(card, made_examples("classify"), tokenizer)
    batch = DeviceBatch.of(inputs.batch(np.arange(len(inputs))).padded())
    actual = []
    for model in (plain, saving.eval()):
        exit_losses(model, batch, distillation=1.0, temperature=2.0).loss.backward()
        actual.append([p.grad for p in model.parameters() if p.grad is not None])
    for one, other in zip(*actual, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
    for depth in range(2):
        own: Any = plain.exits["classify"][depth]  # type: ignore[index]
        assert own.pooler.weight.grad.abs().max() > 0


@pytest.mark.parametrize("exits", ["one", "each"])
@pytest.mark.parametrize(("kind", "head"), KINDS)
def test_the_last_depth_is_what_the_model_predicts(
    tokenizer: Tokenizer, kind: Any, head: Any, exits: Any
) -> None:
    card, examples = made_card(kind, head), made_examples(kind)
    model = with_exits(made_model(card, tokenizer), exits)
    inputs = encode(card, examples, tokenizer)
    logits = depth_logits(model, inputs, batch_tokens=100)
    assert len(logits) == len(model.encoder.plan)
    wanted = predict(model, card, examples, tokenizer, batch_tokens=100)
    assert decoded(card, inputs, examples, logits[-1]) == wanted
    assert decoded(card, inputs, examples, logits[0]) != wanted


@pytest.mark.parametrize("exits", ["one", "each"])
def test_heads_of_all_depths_are_counted(tokenizer: Tokenizer, exits: Any) -> None:
    model = with_exits(made_model(made_card("classify"), tokenizer), exits)
    assert count_model(model.config) == sum(p.numel() for p in model.parameters())


def test_configs_without_exits_are_as_before_and_others_come_back(tokenizer: Tokenizer) -> None:
    head = HeadConfig(kind="classify", labels=("a", "b"))
    assert "exits" not in head.to_dict()
    assert HeadConfig.from_dict(replace(head, exits="each").to_dict()).exits == "each"
    with pytest.raises(ConfigError, match="exits are for classify, multilabel, regress heads, a"):
        HeadConfig(kind="span", exits="one")
    config = with_exits(made_model(made_card("classify"), tokenizer), "one").config
    with pytest.raises(ConfigError, match="reversible layers carry two streams"):
        replace(config, encoder=replace(config.encoder, norm="pre", reversible=True))
