"""Runs of replaced-token detection: they learn, resume bit for bit, do on two ranks what they do on
one, and leave checkpoints that fill masks and can be fine-tuned."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import litebert
from litebert.config import ModelConfig, generator_of
from litebert.convert.folder import convert_folder, load_source
from litebert.errors import ConfigError, InterruptedRunError
from litebert.infer.verbs import encode_masked
from litebert.model.model import Model
from litebert.recipes import FinetuneRecipe, FractionStages, PretrainRecipe, Stages
from litebert.storage.checkpoint import Checkpoint
from litebert.storage.difference import Difference
from litebert.testing import tiny_recipe
from litebert.train.finetune.prepare import head_config, starting_model
from litebert.train.log import read_records
from litebert.train.loop import BetweenSteps, Event, State
from litebert.train.pretrain.run import Pretraining
from tests.helpers.launch import finish, start
from tests.helpers.pretraining import (
    CPU,
    Watched,
    assert_same_run,
    essence,
    events,
    signalled,
    staged_recipe,
    train,
)
from tests.helpers.task_examples import made_card
from tests.train.test_finetune_packed import PretendedGraphs, keep_apart

RTD: dict[str, Any] = {"objective": "rtd", "generator_layers": 1, "detection_weight": 10.0}


@pytest.fixture(scope="module")
def whole(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """An undisturbed run through all stages, and how many microbatches it has."""
    run = tmp_path_factory.mktemp("whole") / "run"
    return run, train(staged_recipe(**RTD), shards, run).calls


@pytest.mark.parametrize("part", [0.3, 0.7])
def test_interrupted_anywhere_it_ends_as_if_it_had_not_been(
    whole: tuple[Path, int], shards: Path, tmp_path: Path, part: float
) -> None:
    run, calls = whole
    with pytest.raises(InterruptedRunError, match="saved, the same command resumes it"):
        train(staged_recipe(**RTD), shards, tmp_path / "run", at=signalled(int(part * calls)))
    train(staged_recipe(**RTD), shards, tmp_path / "run")
    assert_same_run(tmp_path / "run", run)


def test_what_a_run_writes(whole: tuple[Path, int], shards: Path) -> None:
    records = essence(whole[0])
    steps = [record for record in records if record["kind"] == "step"]
    (last,) = [record for record in records if record["kind"] == "evaluation"][-1:]
    names = {f"detection_{name}" for name in ("loss", "accuracy", "precision", "recall")} | {
        "replaced_fraction",
        "masked_loss",
        "masked_accuracy",
        "order_loss",
    }
    for record in (*steps, last):
        assert names <= record.keys()
        assert 0 < record["replaced_fraction"] < 0.5
    for step in steps:
        parts = step["masked_loss"] + step["order_loss"] + 10 * step["detection_loss"]
        assert step["loss"] == pytest.approx(parts)
    (shown,) = [record for record in records if record["kind"] == "examples"]
    assert shown["examples"][0]["guesses"]
    checkpoint = Checkpoint.load(whole[0] / "final")
    assert [head.kind for head in checkpoint.model.config.heads] == ["detect", "order"]
    generator = checkpoint.model.config.generator
    assert generator is not None
    assert (generator.tie, generator.encoder.num_layers) == ("embeddings", 1)


@pytest.mark.parametrize("tie", ["all", "none"])
def test_other_ties_run_through_all_stages_and_resume(
    shards: Path, tmp_path: Path, tie: str
) -> None:
    recipe = staged_recipe(**RTD, generator_tie=tie)
    full = train(recipe, shards, tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        train(recipe, shards, tmp_path / "run", at=signalled(full.calls // 2))
    train(recipe, shards, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("settings", [{"checkpoint_every": 1}, {"generator_size": 16}])
def test_settings_that_a_resumed_run_may_change_and_may_not(
    whole: tuple[Path, int], shards: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Gradient checkpointing changes no bit; another generator is another run."""
    run, calls = whole
    with pytest.raises(InterruptedRunError):
        train(staged_recipe(**RTD), shards, tmp_path / "run", at=signalled(calls // 2))
    changed = staged_recipe(**RTD, **settings)
    if "generator_size" in settings:
        with pytest.raises(ConfigError, match="generator_size: none in the run, 16 now"):
            train(changed, shards, tmp_path / "run")
    else:
        train(changed, shards, tmp_path / "run")
        assert_same_run(tmp_path / "run", run)


def test_positions_of_a_generators_own_table_are_extended_too(shards: Path) -> None:
    recipe = staged_recipe(**RTD, generator_tie="none")
    training = Pretraining(recipe, shards, CPU, say=lambda message: None)
    assert training.learner.model.generator is not None
    table = training.learner.model.generator.encoder.embedding.position.weight
    before = table.detach().clone()

    class Stop:
        wanted = False

    state = State(step=6)
    training._extend_positions(BetweenSteps(state=state, stop=Stop(), is_last=False))
    assert torch.equal(table[:16], before[:16])
    assert torch.equal(table[16:24], before[:8])


WIDER = {
    "embedding_size": 32,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "ffn_size": 128,
    "init_std": 0.1,
}


def learning_recipe() -> PretrainRecipe:
    return tiny_recipe(
        objective="rtd",
        generator_layers=1,
        order="none",
        encoder=WIDER,
        mask_fraction=FractionStages.constant(0.3),
        steps=200,
        batch_size=Stages.constant(32),
        microbatch_tokens=24 * 32,
        evaluate_every=0,
        learning_rate=5e-3,
    )


def test_a_small_run_detects_more_than_the_base_rate(shards: Path, tmp_path: Path) -> None:
    training = train(learning_recipe(), shards, tmp_path / "run")
    steps = [r for r in read_records(tmp_path / "run" / "metrics.jsonl") if r["kind"] == "step"]
    recent = steps[-50:]

    def mean(name: str) -> float:
        return float(np.mean([step[name] for step in recent]))

    assert mean("detection_accuracy") > 1 - mean("replaced_fraction") + 0.03
    assert mean("detection_precision") > 0.6
    assert mean("masked_loss") < steps[0]["masked_loss"] - 1
    scores = training.result.scores  # type: ignore[attr-defined]
    assert scores["detection_accuracy"] > 1 - scores["replaced_fraction"]


def test_two_ranks_equal_one(shards: Path, tmp_path: Path) -> None:
    flags = ("--objective", "rtd", "--generator-layers", "1", "--steps", "12")
    one, two = tmp_path / "one", tmp_path / "two"
    running = [start(shards, one, *flags), start(shards, two, *flags, ranks=2)]
    assert [finish(process) for process in running] == [0, 0]
    for mine, theirs in zip(essence(two), essence(one), strict=True):
        numbers = {name: value for name, value in theirs.items() if isinstance(value, float)}
        assert {name: mine[name] for name in numbers} == pytest.approx(numbers, rel=1e-5, abs=1e-5)


def test_packed_and_replayed_passes_learn_what_padded_ones_do(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs are pretended: a replay reads nothing but the memory of its inputs."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    settings = RTD | {"steps": 8, "evaluate_every": 0, "save_every": 0}
    recipe = tiny_recipe(**settings, microbatch_tokens=24 * 8)
    train(recipe, shards, tmp_path / "padded")
    training = Pretraining(recipe, shards, CPU, say=lambda message: None)
    training.job.pack, training.job.multiple = True, 8 * 24
    model = training.learner.model
    graphs = PretendedGraphs(training.job, training.learner.working.model, pytest.fail)
    training.learner.passes = graphs
    monkeypatch.setattr(training.learner.working, "collect", lambda: keep_apart(model))
    training.train(tmp_path / "packed", progress=False)
    assert graphs.replays >= 5
    runs = (essence(tmp_path / "packed"), essence(tmp_path / "padded"))
    for mine, theirs in zip(*runs, strict=True):
        numbers = {name: value for name, value in theirs.items() if isinstance(value, float)}
        assert {name: mine[name] for name in numbers} == pytest.approx(numbers, rel=1e-4, abs=1e-6)


def test_a_nan_is_skipped(shards: Path, tmp_path: Path) -> None:
    """Whatever the generator samples from logits that are not numbers."""
    recipe = tiny_recipe(**RTD, max_skips=3)
    training = Watched(recipe, shards, CPU)
    bias = training.learner.model.generator.heads["masked"].bias  # type: ignore[union-attr]
    kept: list[torch.Tensor] = []

    def spoil(event: Event) -> None:
        if isinstance(event, BetweenSteps) and event.state.step in (3, 4):
            with torch.no_grad():
                if event.state.step == 3:
                    kept.append(bias.detach().clone())
                    bias.fill_(float("nan"))
                else:
                    bias.copy_(kept[0])

    training.run.subscribers.insert(0, spoil)
    training.train(tmp_path / "run", progress=False)
    assert [event["event"] for event in events(tmp_path / "run")] == ["skip"]


def test_its_checkpoint_fills_masks_by_the_generator_and_says_so(whole: tuple[Path, int]) -> None:
    model = litebert.load(whole[0])
    assert model.verbs == ("fill", "embed")
    assert model.notes == (
        "the model was pretrained by replaced-token detection: its generator fills masks, its "
        "encoder does everything else",
    )
    (guesses,) = model.fill("the [MASK] sails home", top=3)
    generator = model.model.generator
    assert generator is not None
    ids = encode_masked(model.tokenizer, "the [MASK] sails home", max_length=64)
    row = torch.from_numpy(ids).long()[None]
    place = row[0].tolist().index(model.tokenizer.mask_id)
    with torch.inference_mode():
        chances = generator(token_ids=row).logits["masked"][0, place].softmax(-1)
    best = chances.topk(3).values.tolist()
    assert [guess.probability for guess in guesses] == pytest.approx(best)
    assert model.embed("the ship").shape == (model.model.config.encoder.hidden_size,)


def rtd_checkpoint(whole: Path, **settings: Any) -> Checkpoint:
    """Random weights of a shape like the run's."""
    source = Checkpoint.load(whole / "final")
    encoder = replace(source.model.config.encoder, **settings)
    heads = source.model.config.heads
    generator = generator_of(encoder, size=None, layers=1, tie="embeddings")
    torch.manual_seed(0)
    model = Model(ModelConfig(encoder=encoder, heads=heads, generator=generator)).eval()
    return Checkpoint(model=model, tokenizer=source.tokenizer)


def test_evaluation_of_any_text_reads_the_generator(
    whole: tuple[Path, int], shards: Path, tmp_path: Path
) -> None:
    """The scores are those of the generator as a model of its own."""
    scored = litebert.evaluate("masked", model=whole[0], data=shards.parent / "corpus.txt")
    source = Checkpoint.load(whole[0] / "final")
    generator = source.model.generator
    assert generator is not None
    alone = Model(generator.config).eval()
    weights = {name: tensor.clone() for name, tensor in generator.state_dict().items()}
    for name in source.model.encoder.embedding.tables():
        table = getattr(source.model.encoder.embedding, name)
        weights[f"encoder.embedding.{name}.weight"] = table.weight.detach().clone()
    alone.load_state_dict(weights)
    Checkpoint(model=alone, tokenizer=source.tokenizer).save(tmp_path / "alone")
    expected = litebert.evaluate(
        "masked", model=tmp_path / "alone", data=shards.parent / "corpus.txt"
    )
    assert scored.model.loss == pytest.approx(expected.model.loss)
    assert scored.model.accuracy == expected.model.accuracy


def test_int8_and_differences_hold_the_generator_too(
    whole: tuple[Path, int], tmp_path: Path
) -> None:
    source = rtd_checkpoint(whole[0], init_std=0.1)

    def logits(folder: Path) -> torch.Tensor:
        stored = Checkpoint.load(folder).model.filler
        with torch.inference_mode():
            return stored.masked_logits(stored.encoder(token_ids=torch.arange(5, 21).view(2, 8)))

    base = source.save(tmp_path / "exact")
    before = logits(base)
    rounded = logits(source.save(tmp_path / "int8", weights="int8"))
    assert 0 < (rounded - before).norm() < 0.1 * before.norm()
    with torch.no_grad():
        for parameter in source.model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    exact = logits(source.save(tmp_path / "changed"))
    ranks = {"rank": 64, "token_rank": 64}
    changed = logits(source.save(tmp_path / "tuned", weights=Difference(base=base, **ranks)))
    assert (changed - exact).norm() < 0.05 * exact.norm()


def test_converting_keeps_the_encoder_alone(whole: tuple[Path, int], tmp_path: Path) -> None:
    source = rtd_checkpoint(whole[0], norm="post")
    source.save(tmp_path / "ours")
    conversion = convert_folder(tmp_path / "ours", tmp_path / "theirs")
    assert "its encoder was converted, its generator and its heads were left out" in str(
        conversion.notes
    )
    back, _ = load_source(tmp_path / "theirs")
    tokens = torch.randint(5, 80, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = [each.model.encoder(token_ids=tokens) for each in (source, back)]
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-5)


def test_fine_tuning_starts_from_the_encoder_alone(whole: tuple[Path, int]) -> None:
    source = Checkpoint.load(whole[0] / "final")
    recipe, card = (
        FinetuneRecipe(task="classify", steps=1, encoder_dropout=0.0),
        made_card("classify"),
    )
    config = head_config(source, card, recipe)
    model = starting_model(source, config, recipe, attempt=0)
    assert model.generator is None
    assert [head.kind for head in config.heads] == ["classify"]
    for name, tensor in model.encoder.state_dict().items():
        assert torch.equal(tensor, source.model.encoder.state_dict()[name]), name


def test_runs_may_start_from_each_others_checkpoints(
    whole: tuple[Path, int], shards: Path, tmp_path: Path
) -> None:
    masked = train(tiny_recipe(steps=2, evaluate_every=0), shards, tmp_path / "masked")
    shape = {"evaluate_every": 0, "steps": 2}

    def started(init: Path, **changes: Any) -> tuple[str, Pretraining]:
        messages: list[str] = []
        recipe = tiny_recipe(**shape | changes)
        training = Pretraining(recipe, shards, CPU, init=init, say=messages.append)
        return next(text for text in messages if text.startswith("weights start")), training

    final = whole[0] / "final"
    text, training = started(final, **RTD)
    assert "new: " not in text
    old = Checkpoint.load(final).model.state_dict()
    new = training.learner.model.state_dict()
    assert all(torch.equal(new[name], old[name]) for name in old)
    assert "; new: generator" in started(final, **RTD | {"generator_layers": 2})[0]
    assert "; new: generator" in started(final, **RTD | {"generator_tie": "none"})[0]
    mine, theirs = RTD | {"generator_tie": "none"}, tmp_path / "untied"
    train(tiny_recipe(**shape | mine), shards, theirs)
    longer = tiny_recipe(**shape | mine, encoder={"max_positions": 80})
    training = Pretraining(longer, shards, CPU, init=theirs / "final", say=lambda text: None)
    assert training.learner.model.generator is not None
    table = training.learner.model.generator.encoder.embedding.position.weight
    stored = Checkpoint.load(theirs / "final").model.generator
    assert torch.equal(table[:64], stored.encoder.embedding.position.weight)  # type: ignore[union-attr]
    assert table[64:].abs().mean() > 0.2 * table[:64].abs().mean()
    text, training = started(final)
    assert text.endswith("; new: masked")
    assert training.learner.model.generator is None
    text, _ = started(masked.run.folder.final, **RTD)
    assert text.endswith("; new: detect, generator")
