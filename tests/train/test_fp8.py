"""Pretraining in fp8, on a CPU: it learns as in bfloat16, rounds weights once a step, and is
refused where it cannot run."""

from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.errors import ConfigError
from litebert.kernels.fp8.linear import QuantizedLinear
from litebert.recipes import FinetuneRecipe, PretrainRecipe, Stages
from litebert.storage.checkpoint import Checkpoint
from litebert.testing import tiny_recipe, tiny_shards
from litebert.train.log import read_records
from litebert.train.pretrain.run import Pretraining
from litebert.train.runtime import Runtime, check_fp8

SETTINGS: dict[str, Any] = {
    "steps": 10,
    "batch_size": Stages.constant(16),
    "microbatch_tokens": 24 * 4,
    "evaluate_every": 0,
}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_shards(tmp_path_factory.mktemp("fp8"))


def train(shards: Path, out: Path, dtype: Any, **changes: Any) -> list[float]:
    recipe = tiny_recipe(**SETTINGS, dtype=dtype, **changes)
    run = Pretraining(recipe, shards, Runtime.start(device="cpu", dtype=dtype))
    run.train(out, progress=False)
    records = read_records(out / "metrics.jsonl")
    return [record["masked_loss"] for record in records if record["kind"] == "step"]


@pytest.mark.parametrize("checkpoint_every", [0, 1])
def test_a_run_follows_the_course_of_bfloat16(
    shards: Path, tmp_path: Path, checkpoint_every: int
) -> None:
    courses = {
        d: train(shards, tmp_path / d, d, checkpoint_every=checkpoint_every)
        for d in ("bfloat16", "fp8")
    }
    assert courses["fp8"] == pytest.approx(courses["bfloat16"], rel=2e-2)
    assert courses["fp8"] != courses["bfloat16"]
    assert courses["fp8"][-1] < courses["fp8"][0] - 0.1
    Checkpoint.load(tmp_path / "fp8" / "final")  # in float32, under the usual names


def test_weights_are_rounded_once_a_step(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4 microbatches, each through 2 applications of the layer; a rounding more at the start."""
    calls: list[QuantizedLinear] = []
    refresh = QuantizedLinear.refresh
    monkeypatch.setattr(
        QuantizedLinear, "refresh", lambda self: (calls.append(self), refresh(self))
    )
    losses = train(shards, tmp_path, "fp8")
    quantized = set(calls)
    assert len(losses) == 10
    assert (
        len(quantized) == 6
    )  # query, key and value together; query; key and value; output; inner; outer
    assert len(calls) == 11 * len(quantized)


def test_the_working_copy_alone_is_in_8_bits_and_follows_the_master(shards: Path) -> None:
    run = Pretraining(tiny_recipe(dtype="fp8"), shards, Runtime.start(device="cpu", dtype="fp8"))
    quantized = [
        part for part in run.learner.working.model.modules() if isinstance(part, QuantizedLinear)
    ]
    assert quantized
    assert not any(isinstance(part, QuantizedLinear) for part in run.learner.model.modules())
    with torch.no_grad():
        for parameter in run.learner.model.parameters():
            parameter.add_(1)
    run.learner.working.refresh()
    for part in quantized:
        wide = torch.cat([linear.weight for linear in part.parts])
        assert wide.dtype == torch.bfloat16
        assert wide.min() > 0.5
        torch.testing.assert_close(
            part.values.float() * part.scale, wide.float(), rtol=2**-4, atol=0
        )
    run.feed.close()


def test_nothing_is_in_8_bits_unless_asked_for(shards: Path) -> None:
    assert PretrainRecipe().dtype == "auto"
    assert not Runtime.start(device="cpu").fp8
    run = Pretraining(tiny_recipe(), shards, Runtime.start(device="cpu", dtype="bfloat16"))
    assert not any(
        isinstance(part, QuantizedLinear) for part in run.learner.working.model.modules()
    )
    run.feed.close()


def test_a_device_that_cannot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(
        ConfigError,
        match=r"needs a GPU of compute capability 8\.9 or more, and this is .* 8\.0; use --dtype",
    ):
        check_fp8(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    check_fp8(torch.device("cuda"))
    with pytest.raises(ConfigError, match=r"8\.9 or more, and this is 'mps'; use --dtype bfloat16"):
        check_fp8(torch.device("mps"))


def test_sizes_that_cannot_be_multiplied_are_refused(shards: Path) -> None:
    recipe = tiny_recipe(encoder={"ffn_size": 72}, dtype="fp8")
    with pytest.raises(ConfigError, match="multiples of 16, and ffn_size is 72; use bfloat16"):
        Pretraining(recipe, shards, Runtime.start(device="cpu", dtype="fp8"))


def test_fine_tuning_knows_no_fp8() -> None:
    with pytest.raises(ConfigError, match="dtype is one of auto, float32, bfloat16; got 'fp8'"):
        FinetuneRecipe(task="sst2", epochs=1, dtype="fp8")  # type: ignore[arg-type]
