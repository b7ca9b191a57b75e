"""Fine-tuning on two ranks reads what one reads, learns the same within rounding, and both agree on
when to stop."""

import os
import signal
from pathlib import Path

import pytest

from litebert import cli
from litebert.testing import tiny_task
from tests.helpers.finetuning import source
from tests.helpers.launch import finish, ranks_of, start_command, state, wait_for_step
from tests.helpers.pretraining import losses

FLAGS = [
    "--max-length",
    "32",
    "--device",
    "cpu",
    "--retries",
    "0",
    "--patience",
    "0",
    "--head-dropout",
    "0",
]
FLAGS += [
    "--batch-size",
    "7",
    "--evaluations",
    "8",
    "--dtype",
    "float32",
    "--learning-rate",
    "1e-3",
]


@pytest.fixture
def args(tmp_path: Path) -> list[str]:
    """48 examples in batches of 7: the last batch of an epoch has 6, shared as 3 and 3; some shares
    are uneven."""
    model, data = source().save(tmp_path / "model"), tiny_task(tmp_path / "data", "sst2")
    return ["finetune", "sst2", "--model", str(model), "--data", str(data), *FLAGS]


def test_two_ranks_learn_what_one_learns_and_stop_together(args: list[str], tmp_path: Path) -> None:
    two, one = tmp_path / "two", tmp_path / "one"
    steps = ["--steps", "60"]
    process = start_command([*args, *steps, "--out", str(two)], two, ranks=2)
    assert wait_for_step(two, 8, process)
    (rank,) = (pid for rank, pid in ranks_of(process.pid).items() if rank == 1)
    os.kill(rank, signal.SIGTERM)  # to one of them
    assert finish(process) != 0
    assert state(two) == "interrupted"
    assert finish(start_command([*args, *steps, "--out", str(two)], two, ranks=2)) == 0
    assert cli.run([*args, *steps, "--out", str(one)]) == 0
    assert losses(two) == pytest.approx(losses(one), rel=1e-3, abs=1e-5)
    assert losses(two)[:10] == pytest.approx(losses(one)[:10], rel=1e-5)
