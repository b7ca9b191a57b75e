"""Heads read the right states; the joint span head's end is what its formula says of every
start."""

from dataclasses import replace

import pytest
import torch

from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.errors import ConfigError
from litebert.model.embedding import BandedEmbedding
from litebert.model.heads import JointSpanHead, MaskedHead
from litebert.model.model import Model

TINY = PRESETS["tiny"]


def make(*heads: HeadConfig) -> Model:
    torch.manual_seed(0)
    return Model(ModelConfig(encoder=replace(TINY, init_std=0.3), heads=heads)).eval()


def states(seq: int = 7) -> torch.Tensor:
    return torch.randn(3, seq, TINY.hidden_size, generator=torch.Generator().manual_seed(2))


def test_masked_logits_at_chosen_positions_are_those_of_all() -> None:
    model = make(HeadConfig(kind="masked"))
    everywhere = model.masked_logits(states())
    assert everywhere.shape == (21, TINY.vocab_size)
    positions = torch.tensor([0, 5, 20])
    torch.testing.assert_close(
        model.masked_logits(states(), positions), everywhere[positions], rtol=1e-6, atol=1e-6
    )


def test_the_masked_head_is_tied_to_the_embedding() -> None:
    model = make(HeadConfig(kind="masked"))
    assert not any(
        "token" in name or "decoder" in name for name, _ in model.heads.named_parameters()
    )
    before = model.masked_logits(states())
    with torch.no_grad():
        model.encoder.embedding.token.weight[17] *= 2
        model.heads["masked"].bias[17] += 1  # type: ignore[index, operator]
    changed = (model.masked_logits(states()) != before).any(0)
    assert changed.nonzero().flatten().tolist() == [17]


def test_the_masked_head_is_tied_to_every_band_through_its_map() -> None:
    config = replace(TINY, init_std=0.3, embedding_bands=(50, 200))
    torch.manual_seed(0)
    model = Model(ModelConfig(encoder=config, heads=(HeadConfig(kind="masked"),))).double()
    token, head = model.encoder.embedding.token, model.head("masked")
    assert isinstance(token, BandedEmbedding)
    assert isinstance(head, MaskedHead)
    h = head.norm(head.activation(head.dense(states().double().flatten(0, 1))))
    first, second, third = token.tables.parameters()
    logits = [h @ first.T, *((h @ m.weight) @ t.T for m, t in zip(token.maps, (second, third)))]  # noqa: B905
    torch.testing.assert_close(
        model.masked_logits(states().double()), torch.cat(logits, 1), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("head", "shape"),
    [
        (HeadConfig(kind="order"), (3, 2)),
        (HeadConfig(kind="classify", labels=("a", "b", "c", "d")), (3, 4)),
        (HeadConfig(kind="regress"), (3, 1)),
        (HeadConfig(kind="choose"), (3, 1)),
        (HeadConfig(kind="tag", labels=("O", "B", "I")), (3, 7, 3)),
        (HeadConfig(kind="span"), (3, 7, 2)),
    ],
)
def test_each_head_reads_its_states(head: HeadConfig, shape: tuple[int, ...]) -> None:
    model = make(head)
    logits = model.logits(head.kind, states())
    assert logits.shape == shape
    other = states()
    other[:, 1:] = 0  # all but the first token
    pooled = head.kind in ("order", "classify", "regress", "choose")
    assert torch.equal(model.logits(head.kind, other), logits) == pooled


def test_head_dropout_acts_in_training_only() -> None:
    model = make(HeadConfig(kind="classify", labels=("a", "b"), dropout=0.5))
    assert torch.equal(model.logits("classify", states()), model.logits("classify", states()))
    model.train()
    assert not torch.equal(model.logits("classify", states()), model.logits("classify", states()))


def test_a_missing_head_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"this model has no classify head \(it has: order\); fine-tune one"
    ):
        make(HeadConfig(kind="order")).logits("classify", states())


class TestJointSpan:
    def head(self) -> JointSpanHead:
        actual = make(HeadConfig(kind="joint_span", dropout=0.1)).heads["joint_span"]
        assert isinstance(actual, JointSpanHead)
        return actual

    allowed = torch.tensor(
        [[True] * 7, [True, False, False, True, True, False, False], [True] + [False] * 6]
    )

    def test_ends_read_every_state_beside_that_of_the_start(self) -> None:
        """Dense of [state; state at the start], tanh, norm, dense: XLNet's, written out for each
        start of a beam."""
        head, x = self.head(), states()
        starts = torch.tensor([[0, 3], [4, 4], [0, 6]])
        actual = head.end_logits(x, self.allowed, starts)
        for row, number in ((row, number) for row in range(3) for number in range(2)):
            both = torch.cat([x[row], x[row, starts[row, number]].expand(7, -1)], -1)
            told = head.end(head.end_norm(torch.tanh(head.end_dense(both))))[:, 0]
            inside = self.allowed[row]
            torch.testing.assert_close(
                actual[row, number, inside], told[inside], rtol=1e-5, atol=1e-5
            )
            torch.testing.assert_close(
                head(x, self.allowed, starts[:, number]).end[row],
                actual[row, number],
                rtol=1e-5,
                atol=1e-5,
            )

    def test_forbidden_positions_are_never_chosen_before_allowed_ones(self) -> None:
        logits = self.head()(states(), self.allowed, torch.zeros(3, dtype=torch.long))
        for found in (logits.start, logits.end):
            assert set(found[1].topk(3).indices.tolist()) == {0, 3, 4}
            assert found[2].argmax() == 0

    def test_half_precision_stays_finite(self) -> None:
        head = self.head().to(torch.bfloat16)
        logits = head(states().to(torch.bfloat16), self.allowed, torch.zeros(3, dtype=torch.long))
        losses = (
            logits.start.float().log_softmax(-1)[:, 0] + logits.end.float().log_softmax(-1)[:, 0]
        )
        assert losses.isfinite().all()
        assert logits.unanswerable.isfinite().all()
