"""Positions first used in a longer stage are extrapolated from the trained ones, wherever a run was
interrupted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.config import HeadConfig, ModelConfig
from litebert.errors import ConfigError, InterruptedRunError
from litebert.model.model import Model
from litebert.recipes import NAMED, PretrainRecipe, Stages
from litebert.storage.checkpoint import Checkpoint
from litebert.testing import tiny_recipe
from litebert.text.tokenizer import Tokenizer
from litebert.train.loop import BetweenSteps, Event
from litebert.train.pretrain.evaluate import HeldoutScorer
from litebert.train.pretrain.init import (
    FEWEST,
    describe_positions,
    extend_positions,
    load_initial_weights,
    new_positions,
)
from litebert.train.runtime import Runtime
from tests.helpers.pretraining import (
    CPU,
    Watched,
    assert_same_run,
    essence,
    events,
    signalled,
    train,
    weights,
)

TABLE = "encoder.embedding.position.weight"
STAGES = Stages.parse("0:6,3:16")
"""Of sequence length, in a run of 6 steps: 16 is no multiple of 6, and 64 positions are there."""
FIRST = 3
"""The first microbatch of the longer stage: before it a step is one, then two."""


def make_recipe(**changes: Any) -> PretrainRecipe:
    return tiny_recipe(
        **({"steps": 6, "sequence_length": STAGES, "evaluate_every": 0, "save_every": 0} | changes)
    )


@pytest.mark.parametrize(
    ("stages", "trained", "expected"),
    [
        ("24", 0, {}),
        ("0:16,6:24,9:16", 0, {6: range(16, 24)}),
        ("0:16,4:24,6:16,8:24", 0, {4: range(16, 24)}),  # the second time they are trained already
        ("0:8,4:16,6:8,8:32", 0, {4: range(8, 16), 8: range(16, 32)}),
        ("0:8,0.25:16,0.26:32", 0, {3: range(8, 32)}),  # two starts that fall on one step
        ("0:8,0.01:16,0.5:32", 0, {6: range(16, 32)}),  # a first stage that no step is left for
        ("0:8,12:16", 0, {}),  # never reached
        ("0:8,4:16,8:32", 32, {}),
        ("0:8,4:16,8:32", 12, {4: range(12, 16), 8: range(16, 32)}),
        ("0:16,4:32", 8, {4: range(16, 32)}),
    ],
)
def test_which_positions_a_step_is_the_first_to_read(
    stages: str, trained: int, expected: dict[int, range]
) -> None:
    recipe = make_recipe(steps=12, sequence_length=Stages.parse(stages))
    assert new_positions(recipe, trained=trained) == expected
    assert new_positions(replace(recipe, extend_positions=False), trained=trained) == {}
    sinusoids = make_recipe(
        steps=12, sequence_length=recipe.sequence_length, encoder={"positions": "sinusoidal"}
    )
    assert new_positions(sinusoids, trained=trained) == {}


def test_the_demo_copies_nothing() -> None:
    assert len(NAMED["demo"].sequence_length.values) == 2
    assert new_positions(NAMED["demo"]) == {}


def test_rows_are_repeated_in_place_and_twice_is_once() -> None:
    table = torch.nn.Parameter(torch.arange(10.0)[:, None].expand(10, 2).clone())
    address = table.data_ptr()
    for _ in range(2):
        extend_positions(table, range(3, 8))
        assert table[:, 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 8, 9]
    assert table.data_ptr() == address
    assert table.grad_fn is None


def turning(count: int) -> torch.Tensor:
    """Rows of three circles around a point off the origin, walked at different speeds."""
    angles = torch.arange(count, dtype=torch.float64)[:, None] * torch.tensor(
        [0.05, 0.31, 1.1], dtype=torch.float64
    )
    return (
        0.5
        + torch.cat([angles.sin(), angles.cos()], 1)
        @ torch.randn(6, 24, generator=torch.Generator().manual_seed(1)).double()
    )


def test_many_rows_are_extrapolated() -> None:
    """Circles are a linear recurrence, which is found and followed far beyond the rows that were
    given."""
    path = turning(512)
    table = path.clone()
    extend_positions(table, range(128, 512))
    rows = table[128:]
    # a row's distance from the middle is not constant here, and is made so: directions are what can
    # be compared
    away, truth = rows - path[4:124].mean(0), path[128:] - path[4:124].mean(0)
    assert torch.nn.functional.cosine_similarity(away, truth).min() > 0.97


def test_extrapolated_rows_have_the_size_of_the_others_whatever_they_are() -> None:
    noise = torch.randn(128, 32, generator=torch.Generator().manual_seed(0))
    table = torch.cat([noise, torch.zeros(128, 32)])
    for _ in range(2):
        extend_positions(table, range(128, 256))
        assert torch.equal(table[:128], noise)
        sizes = (table[128:] - noise[4:124].mean(0)).norm(dim=1)
        assert torch.allclose(
            sizes, (noise[4:124] - noise[4:124].mean(0)).norm(dim=1).mean().expand(128), rtol=1e-4
        )
    still = torch.ones(128, 8)
    extend_positions(still, range(FEWEST, 128))
    assert torch.allclose(still, torch.ones(128, 8))


def test_their_description() -> None:
    extrapolated = "positions 128 to 511 are extrapolated from the first 128"
    assert describe_positions(range(128, 512)) == extrapolated
    assert describe_positions(range(16, 64)) == "positions 16 to 63 start as copies of the first 16"


@pytest.mark.parametrize("extend", [True, False])
def test_a_run_copies_before_the_first_step_of_the_stage(
    shards: Path, tmp_path: Path, extend: bool
) -> None:
    """A rate of 0 shows that nothing else moved them."""
    recipe = make_recipe(learning_rate=0.0, extend_positions=extend)
    start = Watched(recipe, shards, CPU).learner.model.state_dict()[TABLE].clone()
    train(recipe, shards, tmp_path / "run")
    rows = [*range(6), *(p % 6 if extend else p for p in range(6, 16)), *range(16, len(start))]
    assert torch.equal(weights(tmp_path / "run")[TABLE], start[rows])
    said = [(event["event"], event["step"], event["message"]) for event in events(tmp_path / "run")]
    assert said == [("positions", 3, "positions 6 to 15 start as copies of the first 6")] * extend


def test_copies_are_of_what_was_trained_and_the_first_step_reads_them(
    shards: Path, tmp_path: Path
) -> None:
    """In bfloat16: the master has them, and the copy that computes has them rounded."""
    seen: list[torch.Tensor] = []

    def look(number: int) -> None:
        if number == FIRST:
            master, rounded = (
                one.state_dict()[TABLE]
                for one in (training.learner.model, training.learner.working.model)
            )
            assert torch.equal(master.bfloat16(), rounded)
            seen.append(master.clone())

    runtime = Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=torch.bfloat16)
    training = Watched(make_recipe(), shards, runtime, at=look)
    start = training.learner.model.state_dict()[TABLE].clone()
    training.train(tmp_path / "run", progress=False)
    (table,) = seen
    assert torch.equal(table[6:16], table[[p % 6 for p in range(6, 16)]])
    assert not torch.isclose(table[:6], start[:6]).all(1).any()
    after = training.learner.model.state_dict()[TABLE]
    assert not torch.equal(after[6:12], after[:6])  # from there on each goes its own way


@pytest.mark.parametrize("save_every", [0, 3])
def test_ended_at_that_very_step_it_ends_as_if_it_had_not_been(
    shards: Path, tmp_path: Path, save_every: int
) -> None:
    """By a signal between its steps or inside it (a snapshot from after the copying), or by a kill
    (one from before it)."""

    class Gone(BaseException):
        pass

    def vanish(number: int) -> None:
        if number == FIRST:
            raise Gone

    recipe, whole = make_recipe(save_every=save_every), tmp_path / "whole"
    train(recipe, shards, whole)
    for number in (FIRST - 1, FIRST):
        run = tmp_path / f"signal-{number}"
        with pytest.raises(InterruptedRunError, match="interrupted at step 3 of 6; saved"):
            train(recipe, shards, run, at=signalled(number))
        train(recipe, shards, run)
        assert_same_run(run, whole)
    with pytest.raises(Gone):
        train(recipe, shards, tmp_path / "gone", at=vanish)
    train(recipe, shards, tmp_path / "gone")
    assert_same_run(tmp_path / "gone", whole)
    assert len(events(whole)) == 1


def test_an_evaluation_at_the_switch_is_of_the_stage_before(shards: Path, tmp_path: Path) -> None:
    """Ended inside it, nothing was copied yet; what resumes from there equals a run that was not
    ended."""

    def interrupt(event: Event) -> None:
        if isinstance(event, BetweenSteps) and event.state.step == 3:
            event.stop.wanted = True

    recipe = make_recipe(evaluate_every=3)
    train(recipe, shards, tmp_path / "whole")
    training = Watched(recipe, shards, CPU)
    training.run.subscribers.insert(0, interrupt)
    with pytest.raises(InterruptedRunError, match="interrupted at step 3 of 6"):
        training.train(tmp_path / "parts", progress=False)
    assert events(tmp_path / "parts") == []
    train(recipe, shards, tmp_path / "parts")
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    lengths = [
        record["sequence_length"]
        for record in essence(tmp_path / "whole")
        if record["kind"] == "evaluation"
    ]
    assert lengths == [6, 16]


def checkpoint(max_positions: int, tokenizer: Tokenizer, **encoder: Any) -> Checkpoint:
    shape = replace(
        make_recipe().encoder,
        vocab_size=tokenizer.vocab_size,
        max_positions=max_positions,
        **encoder,
    )
    return Checkpoint(
        model=Model(ModelConfig(encoder=shape, heads=(HeadConfig(kind="masked"),))),
        tokenizer=tokenizer,
    )


@pytest.mark.parametrize(
    ("then", "now", "copied"),
    [
        ("learned", "learned", True),
        ("sinusoidal", "learned", True),
        ("learned", "sinusoidal", True),
        ("sinusoidal", "sinusoidal", False),
    ],
)
def test_a_checkpoint_with_fewer_positions_is_continued_with_copies(
    shards: Path, then: str, now: str, copied: bool
) -> None:
    tokenizer = Tokenizer.load(shards / "tokenizer")
    old, new = (
        checkpoint(6, tokenizer, positions=then),
        checkpoint(16, tokenizer, positions=now),
    )
    trained, start = old.model.state_dict()[TABLE], new.model.state_dict()[TABLE].clone()
    said = load_initial_weights(new.model, old, tokenizer)
    expected = trained[[p % 6 for p in range(16)]] if copied else torch.cat([trained, start[6:]])
    assert torch.equal(new.model.state_dict()[TABLE], expected)
    assert said.endswith(
        "keep their rows" + "; positions 6 to 15 start as copies of the first 6" * copied
    )
    with pytest.raises(ConfigError, match="another shape: max_positions: 16 there, 6 here"):
        load_initial_weights(old.model, new, tokenizer)


def test_bands_of_embeddings_are_continued_with_the_same_vocabulary(shards: Path) -> None:
    tokenizer = Tokenizer.load(shards / "tokenizer")
    old, new = (checkpoint(16, tokenizer, embedding_bands=(20,)) for _ in range(2))
    load_initial_weights(new.model, old, tokenizer)
    assert torch.equal(
        new.model.encoder.embedding.token.weight, old.model.encoder.embedding.token.weight
    )
    size = tokenizer.vocab_size + 1
    encoder = replace(old.model.config.encoder, vocab_size=size)
    larger = Checkpoint(model=Model(replace(old.model.config, encoder=encoder)))
    with pytest.raises(
        ConfigError, match=r"embedding_bands go by token ids, .* the same vocabulary"
    ):
        load_initial_weights(new.model, replace(larger, tokenizer=tokenizer), tokenizer)


def test_adapters_may_join_a_shared_checkpoint(shards: Path) -> None:
    tokenizer = Tokenizer.load(shards / "tokenizer")
    old, new = checkpoint(16, tokenizer), checkpoint(16, tokenizer, adapter_rank=2)
    assert load_initial_weights(new.model, old, tokenizer).endswith("; new: adapters")
    token_ids = torch.arange(12).view(2, 6)
    states = [each.model.encoder.eval()(token_ids=token_ids) for each in (old, new)]
    assert torch.equal(*states)
    with pytest.raises(ConfigError, match="another shape: adapter_rank: 2 there, 0 here"):
        load_initial_weights(old.model, new, tokenizer)


@pytest.mark.parametrize(
    ("positions", "expected"), [(64, {}), (10, {3: range(10, 16)}), (5, {3: range(6, 16)})]
)
def test_positions_of_a_checkpoint_count_as_trained(
    shards: Path, tmp_path: Path, positions: int, expected: dict[int, range]
) -> None:
    checkpoint(positions, Tokenizer.load(shards / "tokenizer")).save(tmp_path / "old")
    assert Watched(make_recipe(), shards, CPU, init=tmp_path / "old").new_positions == expected


def test_the_best_of_a_run_is_the_best_at_its_last_length(shards: Path, tmp_path: Path) -> None:
    """Losses at another length say nothing of each other: the best weights are of the length that a
    user will read."""
    recipe = make_recipe(evaluate_every=3, learning_rate=0.0)
    train(recipe, shards, tmp_path / "run")
    saved = Checkpoint.load(tmp_path / "run" / "best").model.state_dict()[TABLE]
    assert torch.equal(
        saved[6:12], saved[:6]
    )  # of the end, when the longer stage had been filled, though nothing was learned


def test_the_best_of_a_run_is_the_best_at_its_last_depth(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that join late are untrained before."""

    def score(self: HeldoutScorer, model: Model, *, depth: int, **options: Any) -> dict[str, Any]:
        return {"masked_loss": float(depth)}

    monkeypatch.setattr(HeldoutScorer, "__call__", score)
    depth = {"depth": Stages.parse("0:1,3:2"), "encoder": {"share": "none"}}
    recipe = tiny_recipe(steps=6, evaluate_every=3, **depth)
    with pytest.raises(InterruptedRunError):
        train(recipe, shards, tmp_path / "run", at=signalled(4))
    train(recipe, shards, tmp_path / "run")
    best, final = (weights(tmp_path / "run", which) for which in ("best", "final"))
    assert all(torch.equal(best[name], final[name]) for name in final)
