"""Every switch of an encoder through a run and its checkpoints: a killed run ends as if it had not
been, and what is stored computes what was trained."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from litebert.config import HeadConfig, ModelConfig
from litebert.errors import ConfigError, InterruptedRunError
from litebert.kernels.gate import Gate
from litebert.model.model import Model
from litebert.recipes import PretrainRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.storage.difference import Difference
from litebert.testing import tiny_recipe
from litebert.text.tokenizer import Tokenizer
from litebert.train.pretrain.run import Pretraining
from litebert.train.runtime import Runtime
from tests.helpers.launch import finish, start
from tests.helpers.pretraining import CPU, assert_same_run, essence, losses, signalled, train

SWITCHES: dict[str, dict[str, Any]] = {
    "cycle": {"layers_per_group": 2, "cycle": "reversed"},
    "ends": {"num_layers": 4, "unshared_ends": 1},
    "adapters": {"adapter_rank": 3},
    "reversible": {"reversible": True},
    "bands": {"embedding_bands": "20,60"},
    "groups": {"num_layers": 4, "num_groups": 2, "share": "ffn", "positions": "sinusoidal"},
    "attention": {"share": "attention"},
    "unshared": {"share": "none"},
    "all": {
        "num_layers": 3,
        "layers_per_group": 2,
        "cycle": "reversed",
        "unshared_ends": 1,
        "adapter_rank": 2,
        "reversible": True,
        "embedding_bands": "40",
        "positions": "rotary",
    },
}
CHECKPOINTED = [name for name, settings in SWITCHES.items() if "reversible" not in settings]


def recipe(name: str, **changes: Any) -> PretrainRecipe:
    dropout = {"ffn_dropout": 0.1, "attention_dropout": 0.1}
    settings = {"steps": 4, "evaluate_every": 2, "save_every": 2, "encoder": SWITCHES[name]}
    settings["encoder"] = SWITCHES[name] | dropout
    return tiny_recipe(**settings | changes)


KILLED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in SWITCHES if name not in ("attention", "unshared")),
    ("attention", {"order": "nsp", "mask_share": 0.5, "random_share": 0.4}),
    ("unshared", {"order": "none"}),
    ("all", {"objective": "rtd"}),
    ("adapters", {"objective": "rtd", "generator_tie": "all"}),
    ("bands", {"objective": "rtd", "generator_layers": 2}),
    ("cycle", {"objective": "rtd", "generator_tie": "none", "order": "none"}),
]
"""Every switch of an encoder, and those of a recipe that change what is computed."""


@pytest.mark.parametrize(("name", "changes"), KILLED)
def test_a_killed_run_ends_as_if_it_had_not_been(
    name: str,
    changes: dict[str, Any],
    shards: Path,
    tmp_path: Path,
    kill: Callable[[PretrainRecipe, Path, Path, int], None],
) -> None:
    settings = recipe(name, **changes)
    calls = train(settings, shards, tmp_path / "whole").calls
    kill(settings, shards, tmp_path / "killed", calls * 3 // 4)
    train(settings, shards, tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
    assert Checkpoint.load(tmp_path / "whole" / "final").model.config.encoder == replace(
        settings.encoder,
        vocab_size=Tokenizer.load(shards / "tokenizer").vocab_size,
    )


@pytest.mark.parametrize("name", CHECKPOINTED)
def test_gradient_checkpointing_changes_no_bit_and_resumes(
    name: str, shards: Path, tmp_path: Path
) -> None:
    train(recipe(name), shards, tmp_path / "saving")
    with pytest.raises(InterruptedRunError):
        train(recipe(name), shards, tmp_path / "run", at=signalled(5))
    train(recipe(name, checkpoint_every=1), shards, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "saving")


def test_checkpointing_of_reversible_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match="checkpoint_every is then 0, got 1"):
        Model(ModelConfig(encoder=recipe("reversible").encoder), checkpoint_every=1)


def test_a_run_says_what_its_gate_notes(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(note="reversible layers: the plain layer runs")
    monkeypatch.setattr(Runtime, "gate", lambda runtime, config: gate)
    messages: list[str] = []
    Pretraining(recipe("reversible"), shards, CPU, say=messages.append)
    assert messages == [gate.note]


@pytest.mark.parametrize("name", ["adapters", "reversible", "bands"])
def test_it_learns(name: str, shards: Path, tmp_path: Path) -> None:
    train(recipe(name, steps=25, evaluate_every=0, save_every=0), shards, tmp_path / "run")
    actual = losses(tmp_path / "run")
    assert sum(actual[-5:]) < sum(actual[:5]) - 1


@pytest.mark.parametrize("name", SWITCHES)
def test_stored_weights_compute_what_was_trained(name: str, shards: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(shards / "tokenizer")
    encoder = replace(recipe(name).encoder, vocab_size=tokenizer.vocab_size, init_std=0.1)
    torch.manual_seed(0)
    model = Model(ModelConfig(encoder=encoder, heads=(HeadConfig(kind="masked"),))).eval()

    def logits(folder: Path | None) -> Tensor:
        stored = model if folder is None else Checkpoint.load(folder).model.eval()
        with torch.inference_mode():
            return stored.masked_logits(stored.encoder(token_ids=torch.arange(5, 21).view(2, 8)))

    checkpoint = Checkpoint(model=model, tokenizer=tokenizer)
    base = checkpoint.save(tmp_path / "exact")
    before = logits(None)
    assert torch.equal(logits(base), before)
    rounded = logits(checkpoint.save(tmp_path / "int8", weights="int8"))
    assert 0 < (rounded - before).norm() < 0.1 * before.norm()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    ranks = {"rank": 64, "token_rank": 64}
    changed = checkpoint.save(tmp_path / "tuned", weights=Difference(base=base, **ranks))
    after = logits(None)
    assert (after - before).norm() > 0.1 * before.norm()
    assert (logits(changed) - after).norm() < 0.02 * after.norm()


@pytest.mark.timeout(240)
def test_two_ranks_equal_one(shards: Path, tmp_path: Path) -> None:
    """With all switches at once."""
    pairs = [f"{name}={str(value).lower()}" for name, value in SWITCHES["all"].items()]
    flags = ("--encoder", "norm=pre", *pairs, "--depth", "none")
    one, two = tmp_path / "one", tmp_path / "two"
    running = [start(shards, one, *flags), start(shards, two, *flags, ranks=2)]
    assert [finish(process) for process in running] == [0, 0]
    assert Checkpoint.load(one / "final").model.config.encoder.reversible
    for mine, theirs in zip(essence(two), essence(one), strict=True):
        numbers = {name: value for name, value in theirs.items() if isinstance(value, float)}
        assert {name: mine[name] for name in numbers} == pytest.approx(numbers, rel=1e-5, abs=1e-5)
