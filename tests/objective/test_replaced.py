"""Laws of replaced-token detection: samples follow the softmax and the example alone, originals
stay originals, layouts agree, and gradients go where they should."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from litebert.config import (
    EncoderConfig,
    GeneratorConfig,
    HeadConfig,
    ModelConfig,
    Tie,
    generator_of,
)
from litebert.data.batch import Batch
from litebert.data.random import keys
from litebert.errors import ConfigError
from litebert.model.batch import DeviceBatch
from litebert.model.count import count_generator, count_model
from litebert.model.model import Model, bare_model
from litebert.objective import DetectionLosses, detection_scores, pretrain_losses
from litebert.objective.masked import needed_states
from litebert.objective.replaced import generator_losses, is_real, replace_tokens, sample
from litebert.packing import IGNORED, HostBatch
from litebert.storage.checkpoint import Checkpoint

VOCAB, ROWS, SEQ = 50, 6, 12
LAYOUTS: dict[str, Callable[[Batch], HostBatch]] = {
    "padded": lambda batch: batch.padded(draws=True),
    "padded, fixed shapes": lambda batch: batch.padded(most_masked=SEQ, draws=True),
    "packed": lambda batch: batch.packed(most_masked=SEQ, fraction=1.0, multiple=1, draws=True),
    "packed, rounded up": lambda batch: batch.packed(
        most_masked=SEQ, fraction=1.0, multiple=64, draws=True
    ),
}


def make_model(
    tie: Tie = "embeddings",
    *,
    order: bool = True,
    dtype: torch.dtype = torch.float64,
    size: int | None = None,
    layers: int | None = 2,
    **settings: Any,
) -> Model:
    torch.manual_seed(0)
    shape = {
        "vocab_size": VOCAB,
        "embedding_size": 8,
        "hidden_size": 24,
        "num_layers": 3,
        "num_attention_heads": 3,
    }
    encoder = EncoderConfig(
        **shape | {"ffn_size": 32, "max_positions": SEQ, "init_std": 0.3} | settings
    )
    heads = (HeadConfig(kind="detect"), *([HeadConfig(kind="order")] if order else []))
    generator = generator_of(encoder, size=size, layers=layers, tie=tie)
    return Model(ModelConfig(encoder=encoder, heads=heads, generator=generator)).to(dtype).eval()


def make_batch(rows: int = ROWS, seed: int = 0) -> Batch:
    """Rows of different lengths; [CLS] is never masked."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(5, SEQ, rows, endpoint=True)
    column = np.arange(SEQ)
    mask = column < sizes[:, None]
    positions = np.flatnonzero(mask & (column > 0) & (draw.random((rows, SEQ)) < 0.4))
    return Batch(
        token_ids=np.where(mask, draw.integers(5, VOCAB, (rows, SEQ)), 0).astype(np.int32),
        segment_ids=(mask & (column >= 3)).astype(np.uint8),
        mask=mask,
        masked_positions=positions,
        masked_labels=draw.integers(5, VOCAB, len(positions)).astype(np.int32),
        order_labels=draw.integers(0, 2, rows).astype(np.int32),
        indices=np.arange(rows),
        sample_keys=keys(seed, np.arange(rows)),
    )


def uniforms(count: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 2, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [5, 128, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_samples_follow_the_softmax(size: int, dtype: torch.dtype) -> None:
    """Chi-square over the vocabulary, above its mean by five standard deviations at most."""
    generator = torch.Generator().manual_seed(1)
    logits = (2 * torch.randn(size, generator=generator)).to(dtype)
    count = 40_000
    actual = torch.bincount(sample(logits.expand(count, -1), uniforms(count)), minlength=size)
    expected = count * logits.double().softmax(0)
    common = expected >= 10
    observed = torch.cat([actual[common], actual[~common].sum()[None]]).double()
    theory = torch.cat([expected[common], expected[~common].sum()[None]])
    square = ((observed - theory) ** 2 / theory.clamp(min=1e-9))[theory > 0].sum().item()
    freedom = int((theory > 0).sum()) - 1
    assert square < freedom + 5 * (2 * freedom) ** 0.5, (square, freedom)


def test_evenly_spread_draws_give_the_distribution_itself() -> None:
    chances = torch.tensor([0.5, 0.125, 0.0, 0.25, 0.125])
    draws = torch.stack([torch.zeros(64), (torch.arange(64) + 0.5) / 64], 1)
    actual = torch.bincount(sample(chances.log().expand(64, -1), draws), minlength=5)
    assert actual.tolist() == [32, 8, 0, 16, 8]


def test_what_has_no_probability_is_never_sampled() -> None:
    """Not at either end of the interval; and logits that are not finite give a token all the
    same."""
    logits = torch.full((4, 200), float("-inf"))
    logits[:, [3, 150]] = torch.tensor([1.0, 2.0])
    last = 1 - 2.0**-24
    ends = torch.tensor([[0.0, 0.0], [0.0, last], [last, 0.0], [last, last]])
    assert sample(logits, ends).tolist() == [3, 3, 150, 150]
    for wrong in (float("nan"), float("inf")):
        logits[:, 7] = wrong
        assert (((found := sample(logits, ends)) >= 0) & (found < 200)).all()


def test_draws_belong_to_the_example_and_the_column() -> None:
    """In any batch, microbatch and layout; float32 numbers of 24 bits, below 1."""
    batch = make_batch()
    full = batch.padded(draws=True).arrays["draws"]
    assert full.dtype == np.float32
    assert full.shape == (batch.num_masked, 2)
    assert (full >= 0).all()
    assert (full < 1).all()
    assert len(np.unique(full)) == full.size
    parts = [batch.rows(start, start + 2).padded(draws=True).arrays["draws"] for start in (0, 2, 4)]
    assert (np.concatenate(parts) == full).all()
    for lay in LAYOUTS.values():
        arrays = lay(batch).arrays
        assert (arrays["draws"][arrays["masked_labels"] != IGNORED] == full).all()
    assert "draws" not in batch.padded().arrays


@pytest.mark.parametrize("lay", LAYOUTS.values(), ids=LAYOUTS)
def test_a_sample_that_is_the_original_is_original(lay: Callable[[Batch], HostBatch]) -> None:
    batch = make_batch()
    host = lay(batch)
    device = DeviceBatch.of(host)
    labels = device.head_inputs["masked_labels"]
    originals = batch.token_ids.copy()
    originals.reshape(-1)[batch.masked_positions] = batch.masked_labels
    for shift in (0, 1):
        filled, replaced = replace_tokens(device, (labels.clamp(min=0) + shift) % VOCAB)
        real = is_real(filled)
        assert real.sum() == batch.num_tokens
        assert replaced.sum() == shift * batch.num_masked
        assert not (replaced & ~real).any()
        actual = filled.token_ids[real].numpy()
        assert (actual[~replaced[real].numpy()] == originals[batch.mask][~replaced[real]]).all()
        assert filled.needed is None


@pytest.mark.parametrize("tie", ["embeddings", "all", "none"])
@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "post"},
        {"norm": "pre", "positions": "rotary"},
        {"norm": "pre", "reversible": True},
        {"share": "all", "adapter_rank": 2},
        {"embedding_bands": (20,), "embedding_band_factor": 2},
    ],
    ids=str,
)
def test_packed_rows_learn_what_padded_ones_do(tie: Tie, settings: dict[str, Any]) -> None:
    model, batch = make_model(tie, **settings), make_batch()
    expected = values(model, batch, LAYOUTS["padded"])
    for lay in LAYOUTS.values():
        losses, gradients = values(model, batch, lay)
        assert losses == pytest.approx(expected[0], rel=1e-6)
        for mine, theirs in zip(gradients, expected[1], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)


def values(
    model: Model, batch: Batch, lay: Callable[[Batch], HostBatch]
) -> tuple[dict[str, float], list[torch.Tensor]]:
    losses = pretrain_losses(model, DeviceBatch.of(lay(batch)))
    assert isinstance(losses, DetectionLosses)
    total = losses.masked + losses.order + losses.detection
    numbers = {name: number.item() for name, number in losses.numbers().items()}
    return numbers, gradients_of(model, total)


def gradients_of(model: Model, total: torch.Tensor) -> list[torch.Tensor]:
    return list(
        torch.autograd.grad(
            total, list(model.parameters()), allow_unused=True, materialize_grads=True
        )
    )


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_microbatches_add_up_to_the_whole(rows: int) -> None:
    model, batch = make_model(), make_batch()
    full = pretrain_losses(model, DeviceBatch.of(batch.padded(draws=True)))
    parts = [
        pretrain_losses(model, DeviceBatch.of(batch.rows(start, start + rows).padded(draws=True)))
        for start in range(0, ROWS, rows)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    for name, number in full.numbers().items():
        assert getattr(total, name).item() == pytest.approx(number.item(), rel=1e-6), name


def test_losses_equal_a_reference_written_out() -> None:
    """A row at a time, a token at a time, without padding."""
    model, batch = make_model(), make_batch()
    assert model.generator is not None
    device = DeviceBatch.of(batch.padded(draws=True))
    states = needed_states(model.generator, device)
    _, _, sampled = generator_losses(model.generator, states, device)
    filled = batch.token_ids.copy()
    filled.reshape(-1)[batch.masked_positions] = sampled.numpy()
    original = batch.token_ids.copy()
    original.reshape(-1)[batch.masked_positions] = batch.masked_labels
    truth = dict.fromkeys(
        ("detection", "detection_correct", "replaced", "flagged", "flagged_replaced", "masked"), 0.0
    )
    for row in range(ROWS):
        size = int(batch.mask[row].sum())
        segments = torch.from_numpy(batch.segment_ids[row, :size]).long()[None]

        def ids(array: np.ndarray, row: int = row, size: int = size) -> torch.Tensor:
            return torch.from_numpy(array[row, :size]).long()[None]

        guesses = model.generator(token_ids=ids(batch.token_ids), segment_ids=segments)
        chances = guesses.logits["masked"][0].log_softmax(-1)
        output = model(token_ids=ids(filled), segment_ids=segments)
        for column, logit in enumerate(output.logits["detect"][0].tolist()):
            is_replaced = filled[row, column] != original[row, column]
            chance = 1 / (1 + np.exp(-logit))
            truth["detection"] -= np.log(chance if is_replaced else 1 - chance)
            truth["detection_correct"] += (logit > 0) == is_replaced
            truth["replaced"] += is_replaced
            truth["flagged"] += logit > 0
            truth["flagged_replaced"] += logit > 0 and is_replaced
            if row * SEQ + column in batch.masked_positions:
                truth["masked"] -= chances[column, original[row, column]].item()
    losses = pretrain_losses(model, device)
    actual = {name: getattr(losses, name).item() for name in truth}
    assert actual == pytest.approx(truth, rel=1e-5)
    assert 0 < actual["replaced"] <= batch.num_masked


def test_detection_reaches_the_generator_through_tied_tables_alone() -> None:
    batch = DeviceBatch.of(make_batch().padded(draws=True))
    for tie in ("embeddings", "none"):
        model = make_model(tie)  # type: ignore[arg-type]
        assert model.generator is not None
        losses = pretrain_losses(model, batch)
        assert isinstance(losses, DetectionLosses)
        detection = dict(zip(names(model), gradients_of(model, losses.detection), strict=True))
        masked = dict(zip(names(model), gradients_of(model, losses.masked), strict=True))
        of_generator = {name for name in names(model) if name.startswith("generator.")}
        assert all(not detection[name].any() for name in of_generator)
        assert all(masked[name].any() for name in of_generator)
        of_encoder = masked.keys() - of_generator
        reached = {name for name in of_encoder if masked[name].any()}
        tables = {f"encoder.embedding.{name}.weight" for name in ("token", "position", "segment")}
        assert reached == (tables if tie == "embeddings" else set())
        assert all(detection[name].any() for name in tables)
        assert detection["heads.detect.dense.weight"].any()


def names(model: Model) -> list[str]:
    return [name for name, _ in model.named_parameters()]


@pytest.mark.parametrize("tie", ["embeddings", "all", "none"])
def test_tied_weights_are_counted_stored_and_copied_once(tie: Tie, tmp_path: Path) -> None:
    model = make_model(tie, dtype=torch.float32, norm="pre", share="none")
    assert model.generator is not None
    total = sum(parameter.numel() for parameter in model.parameters())
    assert count_model(model.config) == total
    assert model.state_dict().keys() == set(names(model))
    assert model.config.generator is not None
    own = sum(p.numel() for p in model.generator.parameters())
    assert count_generator(model.config.generator) == own
    Checkpoint(model=model).save(tmp_path / "model")
    loaded = Checkpoint.load(tmp_path / "model").model
    assert loaded.config == model.config
    batch = make_batch()
    others = copy.deepcopy(model), loaded
    for part in (model, *others):
        with torch.no_grad():
            part.encoder.embedding.token.weight.mul_(1.5)
            part.encoder.attentions[0].query.weight.mul_(0.5)
    for other in others:
        assert other.generator is not None
        shared = other.generator.encoder.embedding.token is other.encoder.embedding.token
        assert shared == (tie != "none")
        assert other.generator.encoder.embedding.token is not model.encoder.embedding.token
        mine, theirs = (values(part, batch, LAYOUTS["padded"])[0] for part in (other, model))
        assert mine == theirs
    half = copy.deepcopy(model).to(torch.bfloat16)
    assert half.generator is not None
    assert half.generator.encoder.embedding.token.weight.dtype == torch.bfloat16


def test_all_tied_the_generator_is_the_encoders_first_layers() -> None:
    model = make_model("all", layers=2, norm="pre", share="none")
    assert model.generator is not None
    tokens = torch.randint(5, VOCAB, (2, SEQ), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        model.generator.encoder(token_ids=tokens), model.encoder(token_ids=tokens, depth=2)
    )
    assert {name.split(".")[1] for name in names(model) if name.startswith("generator.")} == {
        "heads"
    }


def test_sizes_follow_the_encoder() -> None:
    def shape(**changes: Any) -> tuple[int, ...]:
        settings = {"size": None, "layers": None, "tie": "embeddings"} | changes
        encoder = generator_of(EncoderConfig(), **settings).encoder
        heads, ffn_size = encoder.num_attention_heads, encoder.ffn_size
        return encoder.hidden_size, heads, ffn_size, encoder.num_layers

    assert shape() == (256, 4, 1024, 12)
    assert shape(size=384, layers=6) == (384, 6, 1536, 6)
    assert shape(tie="all", layers=4) == (768, 12, 3072, 4)


def test_a_generator_that_does_not_fit_is_refused() -> None:
    cycle = EncoderConfig(layers_per_group=2, cycle="reversed")
    message = r"the generator is an encoder too, .* is applied at least twice.*generator_layers$"
    with pytest.raises(ConfigError, match=message):
        generator_of(cycle, size=None, layers=1, tie="embeddings")
    encoder = EncoderConfig(vocab_size=100)
    other = EncoderConfig(vocab_size=101, pooler=False)
    for tie in ("embeddings", "all", "none"):
        with pytest.raises(ConfigError, match="has the encoder's vocab_size, 100; got 101"):
            ModelConfig(encoder=encoder, generator=GeneratorConfig(encoder=other, tie=tie))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tie is one of embeddings, all, none; got 'some'"):
        GeneratorConfig(encoder=other, tie="some")  # type: ignore[arg-type]
    for wrong, message in (
        ([], "generator is an object of its settings"),
        ({"encoder": 3}, "encoder of a generator is an object of encoder settings; got 3"),
        ({"encoder": {}, "size": 3}, "there is no GeneratorConfig setting 'size'"),
    ):
        with pytest.raises(ConfigError, match=message):
            ModelConfig.from_dict({"encoder": {}, "generator": wrong})


def test_config_round_trips_and_older_ones_have_no_generator() -> None:
    config = make_model("none").config
    assert ModelConfig.from_dict(config.to_dict()) == config
    assert "generator" not in ModelConfig(encoder=EncoderConfig()).to_dict()
    assert bare_model(config).generator is not None


def test_logits_of_half_precision_are_sampled_and_weighed_in_float32() -> None:
    losses = pretrain_losses(
        make_model(dtype=torch.bfloat16), DeviceBatch.of(make_batch(64).padded(draws=True))
    )
    assert all(number.dtype == torch.float32 for number in losses.numbers().values())


def test_without_an_order_head_order_counts_nothing() -> None:
    losses = pretrain_losses(
        make_model(order=False), DeviceBatch.of(make_batch().padded(draws=True))
    )
    assert losses.order.item() == losses.order_correct.item() == 0.0


def test_scores_come_from_sums() -> None:
    sums = {
        "detection": 5.0,
        "detection_correct": 80.0,
        "replaced": 20.0,
        "flagged": 10.0,
        "flagged_replaced": 8.0,
    }
    assert detection_scores(sums, num_tokens=100) == {
        "detection_loss": 0.05,
        "detection_accuracy": 0.8,
        "detection_precision": 0.8,
        "detection_recall": 0.4,
        "replaced_fraction": 0.2,
    }
    nothing = detection_scores(dict.fromkeys(sums, 0.0), num_tokens=100)
    assert nothing["detection_precision"] == nothing["detection_recall"] == 0.0


def test_detection_of_padding_weighs_nothing() -> None:
    logits = torch.tensor([[3.0, -2.0, 9.0]])
    expected = F.binary_cross_entropy_with_logits(
        logits[:, :2], torch.tensor([[1.0, 0.0]]), reduction="sum"
    )
    model = make_model(dtype=torch.float32)
    model.logits = lambda kind, states: logits  # type: ignore[method-assign, assignment]
    from litebert.objective.replaced import detection_losses

    actual = detection_losses(
        model,
        torch.zeros(1, 3, 24),
        torch.tensor([[True, False, False]]),
        torch.tensor([[True, True, False]]),
    )
    assert actual["detection"].item() == pytest.approx(expected.item())
    counts = ("detection_correct", "replaced", "flagged", "flagged_replaced")
    assert [actual[name].item() for name in counts] == [2, 1, 1, 1]
