"""Laws of the objective: it adds up, it looks at masked positions only, and it errs no more than
float32 must."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from litebert.config import EncoderConfig, HeadConfig, ModelConfig
from litebert.data.batch import Batch
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import Losses, pretrain_losses
from litebert.packing import IGNORED, HostBatch

VOCAB, ROWS, SEQ = 50, 6, 12


def make_model(
    order: bool = True,
    dtype: torch.dtype = torch.float32,
    checkpoint_every: int = 0,
    **settings: Any,
) -> Model:
    torch.manual_seed(0)
    shape = {
        "vocab_size": VOCAB,
        "embedding_size": 8,
        "hidden_size": 16,
        "num_layers": 3,
        "num_attention_heads": 2,
    }
    encoder = EncoderConfig(**shape | {"ffn_size": 32, "max_positions": SEQ} | settings)
    heads = (HeadConfig(kind="masked"), *([HeadConfig(kind="order")] if order else []))
    return (
        Model(ModelConfig(encoder=encoder, heads=heads), checkpoint_every=checkpoint_every)
        .to(dtype)
        .eval()
    )


def make_batch(rows: int = ROWS, seed: int = 0) -> Batch:
    """Rows of different lengths; some with one masked token, some with several."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(5, SEQ, rows, endpoint=True)
    mask = np.arange(SEQ) < sizes[:, None]
    positions = np.flatnonzero(mask & (draw.random((rows, SEQ)) < 0.3))
    return Batch(
        token_ids=np.where(mask, draw.integers(5, VOCAB, (rows, SEQ)), 0).astype(np.int32),
        segment_ids=(mask & (np.arange(SEQ) >= 3)).astype(np.uint8),
        mask=mask,
        masked_positions=positions,
        masked_labels=draw.integers(5, VOCAB, len(positions)).astype(np.int32),
        order_labels=draw.integers(0, 2, rows).astype(np.int32),
        indices=np.arange(rows),
    )


def gradients(model: Model, total: torch.Tensor) -> list[torch.Tensor]:
    return list(
        torch.autograd.grad(
            total, list(model.parameters()), allow_unused=True, materialize_grads=True
        )
    )


def mean(losses: Losses, batch: Batch) -> torch.Tensor:
    return losses.mean(num_masked=batch.num_masked, num_examples=len(batch))


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_microbatches_add_up_to_the_whole(rows: int) -> None:
    """Losses, counts and gradients of the parts, divided by the counts of the whole, sum to those
    of the whole."""
    model, batch = make_model(dtype=torch.float64), make_batch()
    full = pretrain_losses(model, DeviceBatch.of(batch.padded()))
    parts = [
        pretrain_losses(model, DeviceBatch.of(batch.rows(start, start + rows).padded()))
        for start in range(0, ROWS, rows)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    for name, number in full.numbers().items():
        assert getattr(total, name).item() == pytest.approx(number.item(), rel=1e-6), name
    summed = [
        sum(each)
        for each in zip(*(gradients(model, mean(part, batch)) for part in parts), strict=True)
    ]
    for mine, theirs in zip(summed, gradients(model, mean(full, batch)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-8)


def everything(model: Model, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits at every token from states of every token, with those that are not masked ignored; and
    of the order."""
    ids, segments = (
        torch.from_numpy(array).long() for array in (batch.token_ids, batch.segment_ids)
    )
    states = model.encoder(token_ids=ids, segment_ids=segments, mask=torch.from_numpy(batch.mask))
    return model.masked_logits(states), model.logits("order", states)


LAYOUTS: dict[str, Callable[[Batch], HostBatch]] = {
    "padded": Batch.padded,
    "padded, fixed shapes": lambda batch: batch.padded(most_masked=SEQ),
    "packed": lambda batch: batch.packed(most_masked=SEQ, fraction=1.0, multiple=1),
    "packed, rounded up": lambda batch: batch.packed(most_masked=SEQ, fraction=1.0, multiple=64),
}


@pytest.mark.parametrize("lay", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "pre"},
        {"share": "none"},
        {"layers_per_group": 2, "num_layers": 1},
        {"checkpoint_every": 2, "norm": "pre"},
    ],
)
def test_needed_tokens_alone_equal_all(
    lay: Callable[[Batch], HostBatch], settings: dict[str, Any]
) -> None:
    """What BERT's reference does: states and logits everywhere, then a loss with the unmasked
    tokens ignored."""
    model, batch = make_model(dtype=torch.float64, **settings), make_batch()
    labels = torch.full((ROWS * SEQ,), IGNORED)
    labels[batch.masked_positions] = torch.from_numpy(batch.masked_labels).long()
    masked, order = everything(model, batch)
    expected = F.cross_entropy(masked.float(), labels, reduction="sum")
    expected_order = F.cross_entropy(
        order.float(), torch.from_numpy(batch.order_labels).long(), reduction="sum"
    )
    losses = pretrain_losses(model, DeviceBatch.of(lay(batch)))
    assert losses.masked.item() == pytest.approx(expected.item(), rel=1e-6)
    assert losses.order.item() == pytest.approx(expected_order.item(), rel=1e-6)
    mine, theirs = (
        gradients(model, losses.masked + losses.order),
        gradients(model, expected + expected_order),
    )
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def reference(model: Model, batch: Batch) -> dict[str, float]:
    """Written out in float64: minus the log of the softmax at the label, summed; the counts of
    right guesses."""
    masked, order = everything(model, batch)
    actual = {}
    logits = {"masked": masked[batch.masked_positions], "order": order}
    for name, wanted in {"masked": batch.masked_labels, "order": batch.order_labels}.items():
        labels = torch.from_numpy(wanted).long()
        chances = logits[name].exp() / logits[name].exp().sum(-1, keepdim=True)
        actual[name] = -chances[torch.arange(len(labels)), labels].log().sum().item()
        actual[f"{name}_correct"] = float((logits[name].argmax(-1) == labels).sum())
    return actual


def test_losses_equal_a_reference_in_float64() -> None:
    batch = make_batch()
    truth = reference(make_model(dtype=torch.float64), batch)
    mine = {
        name: number.item()
        for name, number in pretrain_losses(make_model(), DeviceBatch.of(batch.padded()))
        .numbers()
        .items()
    }
    assert mine == pytest.approx(truth, rel=1e-5)


def test_logits_and_losses_are_in_float32_when_layers_are_in_bfloat16() -> None:
    batch = make_batch(rows=64)
    truth = reference(make_model(dtype=torch.float64), batch)["masked"] / batch.num_masked
    losses = pretrain_losses(make_model(dtype=torch.bfloat16), DeviceBatch.of(batch.padded()))
    assert losses.masked.dtype == torch.float32
    assert losses.masked.item() / batch.num_masked == pytest.approx(truth, rel=1e-2)


def test_an_untrained_model_is_as_good_as_chance() -> None:
    losses = pretrain_losses(make_model(), DeviceBatch.of((batch := make_batch(rows=64)).padded()))
    assert losses.masked.item() / batch.num_masked == pytest.approx(np.log(VOCAB), rel=0.02)
    assert losses.order.item() / len(batch) == pytest.approx(np.log(2), rel=0.02)


def test_without_an_order_head_only_masked_tokens_count() -> None:
    model, batch = make_model(order=False), make_batch()
    losses = pretrain_losses(model, DeviceBatch.of(batch.padded()))
    assert losses.order.item() == losses.order_correct.item() == 0.0
    assert mean(losses, batch).item() == pytest.approx(losses.masked.item() / batch.num_masked)
    other = replace(batch, order_labels=1 - batch.order_labels)
    assert torch.equal(pretrain_losses(model, DeviceBatch.of(other.padded())).masked, losses.masked)


def test_both_losses_are_means_of_their_own_weighted_alike() -> None:
    numbers = {"masked": 12.0, "masked_correct": 1.0, "order": 6.0, "order_correct": 2.0}
    losses = Losses(**{name: torch.tensor(number) for name, number in numbers.items()})
    assert losses.mean(num_masked=4, num_examples=3).item() == 12 / 4 + 6 / 3


def test_depth_stops_the_layers() -> None:
    model, batch = make_model(), DeviceBatch.of(make_batch().padded())
    by_depth = [pretrain_losses(model, batch, depth=depth).masked.item() for depth in (1, 2, 3)]
    assert len(set(by_depth)) == 3
    assert by_depth[-1] == pretrain_losses(model, batch).masked.item()
