"""What a process with an exported model needs: memory, and time from its start to an answer, beside
Hugging Face's. Prints one JSON object.

    python -m bench.cpu.start

Memory: albert-base with random weights, in its own process each; the most that was resident while
one text of 128 tokens was embedded three times. Start: `litebert classify` of one short text by the
embedded sentiment model, exported in int8, as the command without flags finds it (float32, from the
cache), and by torch; the median and the least of --rounds starts.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AlbertConfig, AlbertModel

from bench.common.peers import huggingface_settings
from bench.common.results import add_out, begin, publish
from litebert.config import PRESETS, ModelConfig
from litebert.infer.cpu import processor
from litebert.infer.export.folder import ExportOptions, export_folder, export_model
from litebert.model.model import Model
from litebert.models.index import default_model
from litebert.storage.checkpoint import Checkpoint
from litebert.text.tokenizer import Tokenizer

PEAK = """
import re
from pathlib import Path
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""
OURS = """
import sys
from litebert.infer.predictor import load
model = load(sys.argv[1], threads=1)
for _ in range(3):
    model.embed("the " * 126)
"""
THEIRS = """
import sys, torch
from transformers import AlbertModel
torch.set_num_threads(1)
model = AlbertModel.from_pretrained(sys.argv[1]).eval()
ids = torch.full((1, 128), 13)
with torch.inference_mode():
    for _ in range(3):
        model(input_ids=ids)
"""
TEXT = "a film that nobody will forget"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--preset", default="albert-base-v2")
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        report = {
            "processor": processor(),
            "memory_mib": memory(Path(folder), options.preset),
            "start_seconds": starts(Path(folder), options.rounds),
        }
    publish(report, options.out)


def memory(folder: Path, preset: str) -> dict[str, float]:
    torch.manual_seed(0)
    encoder = PRESETS[preset]
    model = Model(ModelConfig(encoder=encoder)).eval()
    tokenizer = Tokenizer.load(default_model().folder)
    checkpoint = Checkpoint(model=model, tokenizer=tokenizer)
    AlbertModel(AlbertConfig(**huggingface_settings(encoder))).save_pretrained(folder / "theirs")
    checkpoint.save(folder / "torch")
    sizes = {
        "huggingface": peak(THEIRS, folder / "theirs"),
        "litebert torch": peak(OURS, folder / "torch"),
    }
    for runtime in ("onnx", "openvino"):
        options = ExportOptions(runtime=runtime, precision="int8")  # type: ignore[arg-type]
        export_folder(checkpoint, folder / runtime, options)
        sizes[f"litebert {runtime} int8"] = peak(OURS, folder / runtime)
    sizes["nothing but Python"] = peak("", folder)
    return sizes | {
        f"{name}, of huggingface": size / sizes["huggingface"]
        for name, size in sizes.items()
        if name.endswith("int8")
    }


def peak(program: str, folder: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", program + PEAK, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def starts(folder: Path, rounds: int) -> dict[str, Any]:
    for runtime in ("onnx", "openvino"):
        options = ExportOptions(runtime=runtime, precision="int8")  # type: ignore[arg-type]
        export_model("sentiment", folder / f"sentiment-{runtime}", options)
    flags = {
        "onnx int8": ["--model", str(folder / "sentiment-onnx")],
        "openvino int8": ["--model", str(folder / "sentiment-openvino")],
        "embedded": [],
        "torch": ["--engine", "torch"],
    }
    # compiled modules as an installed package has them, and a cache of its own
    environment = {name: value for name, value in os.environ.items() if "DONTWRITE" not in name}
    environment |= {"PYTHONPYCACHEPREFIX": str(folder / "pyc"), "XDG_CACHE_HOME": str(folder)}
    seconds: dict[str, list[float]] = {name: [] for name in flags}
    for number in range(rounds + 1):
        for name, each in flags.items():
            if name == "torch" and number > max(1, rounds // 4):
                continue
            command = [sys.executable, "-m", "litebert.cli", "classify", TEXT, *each]
            began = time.perf_counter()
            subprocess.run(command, env=environment, check=True, capture_output=True)
            if number:  # the first one compiles modules and exports
                seconds[name].append(time.perf_counter() - began)
    return {
        name: {"median": statistics.median(each), "least": min(each), "starts": len(each)}
        for name, each in seconds.items()
    }


if __name__ == "__main__":
    main()
