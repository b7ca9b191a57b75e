"""A large batch's memory goes back to the system when the verb is done."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.openvino_graphs import _Compiled
from litebert.infer.predictor import load
from tests.helpers.models import texts
from tests.infer.test_export import model_of

EMBED = """
import re, sys
from pathlib import Path
from litebert.infer.continuous import Continuous
from litebert.infer.predictor import load

def megabytes(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

model = load(sys.argv[1], threads=1, batch_tokens=8192)
model.embed("the old fox .")
before = megabytes("VmRSS")
texts = ["the old fox sings . " * 10] * 128
if sys.argv[2] == "verb":
    model.embed(texts)
else:
    continuous = Continuous(model)
    for number, text in enumerate(texts):
        continuous.admit("embed", text, number)
    while len(continuous):
        continuous.tick()
print(megabytes("VmHWM") - before, megabytes("VmRSS") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory as Linux tells it")
@pytest.mark.parametrize("engine", ["onnx", "openvino"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("way", ["verb", "depth by depth"])
def test_memory_of_a_large_batch_is_returned(
    tmp_path: Path, precision: Any, engine: Any, way: str
) -> None:
    checkpoint = model_of(tmp_path, (), ffn_size=2048)
    options = ExportOptions(runtime=engine, precision=precision)
    export_folder(checkpoint, tmp_path / "out", options)
    command = [sys.executable, "-c", EMBED, str(tmp_path / "out"), way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    at_most, afterwards = map(int, re.findall(r"-?\d+", done.stdout))
    assert at_most > 20
    assert afterwards < at_most / 2, done.stdout


def test_a_release_while_a_batch_begins_forgets_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread's, between the choice of a graph and its run."""
    export_folder(model_of(tmp_path, ()), tmp_path / "out", ExportOptions(runtime="openvino"))
    model = load(tmp_path / "out", threads=1)
    run, release, held = _Compiled.run, _Compiled.release, set[int]()

    def interrupted(self: Any, inputs: Any) -> Any:
        model.engine.release()
        held.add(id(self))
        return run(self, inputs)

    def counted(self: Any) -> bool:
        held.discard(id(self))
        return release(self)

    monkeypatch.setattr(_Compiled, "run", interrupted)
    monkeypatch.setattr(_Compiled, "release", counted)
    model.embed(texts(64))
    assert not held
