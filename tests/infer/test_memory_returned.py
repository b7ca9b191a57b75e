"""A large batch's memory goes back to the system when the verb is done."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from litebert.infer.export.folder import ExportOptions, export_folder
from tests.infer.test_export import model_of

EMBED = """
import re, sys
from pathlib import Path
from litebert.infer.predictor import load

def megabytes(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

model = load(sys.argv[1], threads=1, batch_tokens=8192)
model.embed("the old fox .")
before = megabytes("VmRSS")
model.embed(["the old fox sings . " * 10] * 128)
print(megabytes("VmHWM") - before, megabytes("VmRSS") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory as Linux tells it")
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_memory_of_a_large_batch_is_returned(tmp_path: Path, precision: str) -> None:
    checkpoint = model_of(tmp_path, (), ffn_size=2048)
    export_folder(checkpoint, tmp_path / "out", ExportOptions(precision=precision))  # type: ignore[arg-type]
    command = [sys.executable, "-c", EMBED, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    at_most, afterwards = map(int, re.findall(r"-?\d+", done.stdout))
    assert at_most > 60
    assert afterwards < at_most / 3, done.stdout
