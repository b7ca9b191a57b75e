"""Shards that every test of training may read, and runs that are killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from litebert.recipes import PretrainRecipe
from litebert.testing import tiny_shards

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
import torch
from litebert.recipes import PretrainRecipe
from tests.helpers.pretraining import signalled, train

torch.set_num_threads(1)
for line in sys.stdin:
    recipe, shards, out, number = json.loads(line)
    child = os.fork()  # torch is imported once
    if child == 0:
        recipe, at = PretrainRecipe.from_dict(recipe), signalled(number, signal.SIGKILL)
        train(recipe, Path(shards), Path(out), at=at)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_shards(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Tiny models: threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def kill() -> Iterator[Callable[[PretrainRecipe, Path, Path, int], None]]:
    """Pretrains in a process of its own, which SIGKILL ends before microbatch `number`."""
    path = {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | path,
    ) as process:
        requests, answers = process.stdin, process.stdout
        assert requests is not None
        assert answers is not None

        def train(recipe: PretrainRecipe, shards: Path, out: Path, number: int) -> None:
            requests.write(json.dumps([recipe.to_dict(), str(shards), str(out), number]) + "\n")
            requests.flush()
            assert int(answers.readline()) == signal.SIGKILL
            assert json.loads((out / "status.json").read_text())["state"] == "running"

        yield train
