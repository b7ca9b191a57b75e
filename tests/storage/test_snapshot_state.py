"""A run resumed from a snapshot equals the undisturbed one bitwise; what does not fit is refused;
nothing is unpickled."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from litebert.errors import CheckpointError
from litebert.files import write_folder
from litebert.optim.groups import make_optimizer, set_learning_rate
from litebert.recipes import OptimizerSpec
from litebert.storage.snapshot import Snapshot, SnapshotStore

SPECS = {
    "lamb": OptimizerSpec(name="lamb", bias_correction=False, learning_rate=0.01),
    "lamb of the paper": OptimizerSpec(
        name="lamb", bias_correction=True, learning_rate=0.01, norm_clamp=(0.0, 10.0)
    ),
    "adamw": OptimizerSpec(learning_rate=0.01),
    "adamw without correction": OptimizerSpec(bias_correction=False, learning_rate=0.01),
}


def make(
    spec: OptimizerSpec, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(
        dtype
    )
    return model, make_optimizer(model.named_parameters(), spec)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """Dropout draws from torch's generator, so a resume that forgets it shows."""
    dtype = next(model.parameters()).dtype
    for step in steps:
        set_learning_rate(optimizer, 0.01 / (step + 1))
        optimizer.zero_grad(set_to_none=True)
        inputs = torch.linspace(-1, 1, 24).reshape(6, 4).roll(step).to(dtype)
        model(inputs).square().sum().backward()
        optimizer.step()


def assert_equal(a: Any, b: Any) -> None:
    if isinstance(a, Tensor):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert type(a) is type(b)
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        assert type(a) is type(b)
        assert a == b


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_resumed_equals_undisturbed(
    tmp_path: Path, spec: OptimizerSpec, dtype: torch.dtype
) -> None:
    whole_model, whole_optimizer = make(spec, dtype)
    train(whole_model, whole_optimizer, range(8))

    model, optimizer = make(spec, dtype)
    train(model, optimizer, range(3))
    where = {"step": 3, "epoch": 1, "index": 18, "recipe": "r", "metrics_offset": 321}
    extra = {"best": float("inf"), "skipped": [1, 2]}
    SnapshotStore(tmp_path).save(Snapshot.capture(model, optimizer, extra=extra, **where))

    model, optimizer = make(spec, dtype)
    train(model, optimizer, range(20, 21))  # something else has happened meanwhile
    snapshot = SnapshotStore(tmp_path).latest()
    assert snapshot is not None
    assert {name: getattr(snapshot, name) for name in where} == where
    assert snapshot.extra == extra
    snapshot.restore(model, optimizer)
    train(model, optimizer, range(3, 8))
    assert_equal(dict(whole_model.state_dict()), dict(model.state_dict()))
    assert_equal(whole_optimizer.state_dict(), optimizer.state_dict())


def test_a_snapshot_owns_its_tensors(tmp_path: Path) -> None:
    """Training on after a restore changes neither the snapshot nor its files."""
    model, optimizer = make(SPECS["adamw"])
    train(model, optimizer, range(2))
    store = SnapshotStore(tmp_path)
    store.save(Snapshot.capture(model, optimizer, step=2, epoch=0, index=0, recipe="r"))
    first, second = store.latest(), store.latest()
    assert first is not None
    assert second is not None
    first.restore(model, optimizer)
    train(model, optimizer, range(2, 5))
    assert_equal(dict(second.model), dict(SnapshotStore(tmp_path).latest().model))  # type: ignore[union-attr]


def test_the_generator_continues_where_the_snapshot_was_taken() -> None:
    model, optimizer = make(SPECS["adamw"])
    snapshot = Snapshot.capture(model, optimizer, step=0, epoch=0, index=0, recipe="r")
    first = torch.rand(5)
    # a device that this machine does not have is skipped
    random = {**snapshot.random, "cuda:99": snapshot.random["cpu"]}
    replace(snapshot, random=random).restore(model, optimizer)
    assert torch.equal(torch.rand(5), first)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_resumed_equals_undisturbed_on_a_gpu(tmp_path: Path, spec: OptimizerSpec) -> None:
    def start() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = make(spec)[0].cuda()
        return model, make_optimizer(model.named_parameters(), spec)

    def weights(model: nn.Module) -> dict[str, Tensor]:
        return {name: tensor.cpu() for name, tensor in model.state_dict().items()}

    with torch.device("cuda"):
        model, optimizer = start()
        train(model, optimizer, range(3))
        SnapshotStore(tmp_path).save(
            Snapshot.capture(model, optimizer, step=3, epoch=0, index=0, recipe="r")
        )
        train(model, optimizer, range(3, 8))
        expected = weights(model)
        model, optimizer = start()
        snapshot = SnapshotStore(tmp_path).latest()
        assert snapshot is not None
        assert "cuda:0" in snapshot.random
        snapshot.restore(model, optimizer)
        train(model, optimizer, range(3, 8))
    assert_equal(expected, weights(model))


def test_machine_dependent_settings_are_not_restored(tmp_path: Path) -> None:
    """A snapshot of an optimizer that is not fused resumes in one that is, as after a change of
    machine."""
    model, optimizer = make(SPECS["adamw"])
    train(model, optimizer, range(2))
    for group in optimizer.param_groups:
        group["fused"], group["foreach"] = None, True
    snapshot = Snapshot.capture(model, optimizer, step=2, epoch=0, index=0, recipe="r")
    model, optimizer = make(SPECS["adamw"])
    snapshot.restore(model, optimizer)
    assert [group["fused"] for group in optimizer.param_groups] == [True, True]
    assert not any(group["foreach"] for group in optimizer.param_groups)
    train(model, optimizer, range(2, 3))


def test_tied_and_sliced_tensors_are_written(tmp_path: Path) -> None:
    table = torch.arange(12.0).reshape(3, 4)
    model = {"a": table, "b": table, "slice": table[:2], "transposed": table.T}
    snapshot = Snapshot(step=1, epoch=0, index=0, recipe="r", model=model, optimizer={})
    write_folder(tmp_path / "x", snapshot.write)
    assert_equal(dict(Snapshot.read(tmp_path / "x").model), model)


def test_another_model_or_optimizer_is_refused() -> None:
    model, optimizer = make(SPECS["adamw"])
    snapshot = Snapshot.capture(model, optimizer, step=0, epoch=0, index=0, recipe="r")
    with pytest.raises(
        CheckpointError, match=r"another model: 3\.bias is torch\.float32 \[2\] in it, absent here"
    ):
        snapshot.restore(nn.Sequential(*list(model)[:3]), optimizer)
    wider = nn.Sequential(*list(model)[:3], nn.Linear(8, 3))
    with pytest.raises(CheckpointError, match=r"another model: 3\.(weight|bias) is"):
        snapshot.restore(wider, optimizer)
    fewer = make_optimizer(list(model.named_parameters())[1:], SPECS["adamw"])
    with pytest.raises(CheckpointError, match="optimizer has other parameters or another order"):
        snapshot.restore(model, fewer)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"format": "litebert-snapshot", "version": 99}',
        '{"format": "x", "version": 1}',
        "[" * 10**5,
    ],
)
def test_a_valid_folder_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    target = write_folder(
        tmp_path / "x", lambda folder: (folder / "snapshot.json").write_text(text) and None
    )
    with pytest.raises(CheckpointError, match="is not a snapshot that this litebert reads"):
        Snapshot.read(target)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    model, optimizer = make(SPECS["lamb"])
    train(model, optimizer, range(2))
    SnapshotStore(tmp_path).save(
        Snapshot.capture(model, optimizer, step=2, epoch=0, index=0, recipe="r")
    )
    code = """
import pickle, sys
from litebert.storage.snapshot import SnapshotStore

def forbid(event, args):
    if event == "pickle.find_class":
        raise RuntimeError("unpickled")

data = pickle.dumps(SnapshotStore)
sys.addaudithook(forbid)
assert SnapshotStore(sys.argv[1]).latest().step == 2
try:
    pickle.loads(data)
except RuntimeError:
    sys.exit(0)  # the hook is awake
sys.exit(1)
"""
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0
