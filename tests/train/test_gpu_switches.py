"""Plans, adapters, bands and reversible layers on a GPU.

Shape checks stand in the way of compiling: run it with --noconftest.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from litebert.config import PRESETS
from litebert.model.encoder import Encoder
from litebert.model.reversible import halves_of
from litebert.testing import tiny_recipe, tiny_shards
from litebert.train.log import read_records
from litebert.train.pretrain.run import Pretraining
from litebert.train.runtime import Runtime

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CONFIG = replace(PRESETS["tiny"], norm="pre", reversible=True, init_std=0.1)
SWITCHES: dict[str, dict[str, Any]] = {
    "plan": {"layers_per_group": 2, "num_layers": 3, "cycle": "reversed", "unshared_ends": 1},
    "adapters": {"adapter_rank": 4},
    "bands": {"embedding_bands": "20,60"},
    "reversible": {"reversible": True, "ffn_dropout": 0.1, "attention_dropout": 0.1},
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_shards(tmp_path_factory.mktemp("gpu"), documents=400)


def encoder_of(**changes: Any) -> Encoder:
    torch.manual_seed(0)
    return Encoder(replace(CONFIG, **changes)).cuda()


def token_ids(batch: int = 2, seq: int = 24) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, CONFIG.vocab_size, (batch, seq), generator=generator).cuda()


def test_what_is_recomputed_has_the_same_dropout() -> None:
    """Gradients are those of the equations written out, and the random generator ends where theirs
    does."""
    encoder = encoder_of(ffn_dropout=0.2, attention_output_dropout=0.2).double()

    def written_out() -> Tensor:
        first = second = encoder.embedding(token_ids())
        for application in encoder.plan:
            for half in halves_of(encoder.modules_of(application), None):
                first, second = second, first + half.update(second)
        final: Tensor = encoder.norm((first + second) / 2)
        return final

    results = []
    for compute in (lambda: encoder(token_ids=token_ids()), written_out):
        encoder.zero_grad()
        torch.manual_seed(3)
        compute().square().sum().backward()
        gradients = [each.grad for each in encoder.parameters() if each.grad is not None]
        results.append([*gradients, torch.rand(1, device="cuda")])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_memory_does_not_grow_with_depth() -> None:
    peaks = []
    for depth in (4, 32):
        encoder = encoder_of(num_layers=depth).bfloat16()
        for _ in range(2):  # the first time libraries allocate
            encoder.zero_grad()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            encoder(token_ids=token_ids(64, 64)).float().square().sum().backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < 1.02 * peaks[0]


@pytest.mark.parametrize("name", SWITCHES)
def test_every_switch_learns_in_bfloat16(name: str, shards: Path, tmp_path: Path) -> None:
    """With what runs there by default: compilation, graphs and packed rows, or none of them."""
    shape = {"hidden_size": 128, "num_attention_heads": 2, "ffn_size": 512}
    recipe = tiny_recipe(
        encoder=shape | SWITCHES[name], steps=40, dtype="bfloat16", evaluate_every=0, save_every=0
    )
    training = Pretraining(recipe, shards, Runtime.start(dtype="bfloat16"))
    training.train(tmp_path / "run", progress=False)
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    losses = [record["loss"] for record in records if record["kind"] == "step"]
    assert sum(losses[-5:]) < sum(losses[:5]) - 1
