"""Model.forward: the same numbers as encoder and heads one by one; hooks and torch.export read
it."""

from dataclasses import replace
from typing import Any

import torch

from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.model.heads import SpanLogits
from litebert.model.model import Model, ModelOutput

TINY = PRESETS["tiny"]
HEADS = (
    HeadConfig(kind="masked"),
    HeadConfig(kind="order"),
    HeadConfig(kind="classify", labels=("a", "b", "c")),
    HeadConfig(kind="tag", labels=("O", "B")),
    HeadConfig(kind="joint_span"),
)
IDS = torch.randint(5, TINY.vocab_size, (2, 9), generator=torch.Generator().manual_seed(1))
MASK = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])


def make(*heads: HeadConfig, **changes: Any) -> Model:
    torch.manual_seed(0)
    return Model(ModelConfig(encoder=replace(TINY, **changes), heads=heads)).eval()


def test_forward_is_the_encoder_and_each_head() -> None:
    model = make(*HEADS)
    output = model(token_ids=IDS, mask=MASK)
    states = model.encoder(token_ids=IDS, mask=MASK)
    assert torch.equal(output.states, states)
    assert torch.equal(output.pooled, model.encoder.pool(states))
    assert list(output.logits) == [head.kind for head in HEADS]
    assert torch.equal(output.logits["masked"].flatten(0, 1), model.masked_logits(states))
    for kind in ("order", "classify", "tag"):
        assert torch.equal(output.logits[kind], model.logits(kind, states))


def test_the_joint_span_head_takes_the_likeliest_start() -> None:
    model = make(HeadConfig(kind="joint_span"), init_std=0.3)
    output = model(token_ids=IDS, mask=MASK)
    logits = output.logits["joint_span"]
    assert isinstance(logits, SpanLogits)
    starts = logits.start.argmax(-1)
    for given, expected in zip(
        logits, model.heads["joint_span"](output.states, MASK, starts), strict=True
    ):
        assert torch.equal(given, expected)


def test_without_heads_and_pooler_there_are_states_alone() -> None:
    output = make(pooler=False)(token_ids=IDS)
    assert output.pooled is None
    assert output.logits == {}


def test_hooks_see_the_typed_output() -> None:
    model, seen = make(HeadConfig(kind="order")), []
    model.register_forward_hook(lambda module, args, output: seen.append(output))
    output = model(token_ids=IDS)
    assert isinstance(seen[0], ModelOutput)
    assert torch.equal(seen[0].logits["order"], output.logits["order"])


def test_torch_exports_the_model() -> None:
    model = make(HeadConfig(kind="masked"), HeadConfig(kind="order"))
    with torch.no_grad():
        exported = torch.export.export(
            model, (), {"token_ids": IDS, "mask": MASK}, strict=False
        ).module()
        output, expected = (
            exported(token_ids=IDS, mask=MASK),
            model(token_ids=IDS, mask=MASK),
        )
    torch.testing.assert_close(output.states, expected.states)
    torch.testing.assert_close(output.logits["masked"], expected.logits["masked"])
