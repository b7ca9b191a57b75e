"""Speed and memory of predicting, against the same model fed plain batches in the same run. Prints
one JSON object.

    python -m bench.cpu.predict  # generated texts
    # the rows of a .csv, .tsv, .jsonl, .parquet or .txt file
    python -m bench.cpu.predict --data FILE [--text COLUMN]
    # rows of the files that memory is measured on
    python -m bench.cpu.predict --rows 10000 200000

Speed: the same texts of very different lengths, embedded by the Predictor and by a loop over
batches of --batch-size in the order given, padded to the longest of each; both make their tokens
themselves. CPU seconds of one thread, interleaved, the median of the repeats; the vectors must
agree. Memory: `predict_file` in a process of its own, the most it ever held while it ran, by number
of rows (Linux).
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common.results import add_out, begin, publish
from bench.common.timing import in_turns, ratios
from litebert.config import EncoderConfig, HeadConfig, ModelConfig
from litebert.infer.files import PredictOptions, predict_file
from litebert.infer.predictor import Predictor, load
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.tables.rows import read_rows
from litebert.testing import tiny_documents, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="a file of texts")
    parser.add_argument("--text", default="text", help="its column")
    parser.add_argument("--tokenizer", help="a SentencePiece model; a tiny one is made without it")
    parser.add_argument("--count", type=int, default=2000, help="texts for the speed")
    parser.add_argument("--batch-size", type=int, default=32, help="of the plain loop")
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 200_000])
    parser.add_argument(
        "--measure", nargs=3, metavar=("MODEL", "INPUT", "OUT"), help=argparse.SUPPRESS
    )
    add_out(parser)
    options = parser.parse_args()
    begin(options.out, threads=1)
    torch.set_num_threads(1)
    if options.measure:
        print(json.dumps(memory_here(*options.measure)))
        return
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        report = {
            "speed": speed(options, Path(folder)),
            "memory": [memory(rows, Path(folder)) for rows in options.rows],
        }
    publish(report, options.out)


def speed(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    pieces = Tokenizer.load(options.tokenizer or tiny_tokenizer(folder / "tokenizer"))
    texts = (
        [str(row[options.text]) for _, row in read_rows(options.data)]
        if options.data
        else made_texts(options.count)
    )
    texts = random.Random(0).sample(texts, min(options.count, len(texts)))
    model = load(
        save(folder / "fast", pieces, hidden_size=options.hidden_size, num_layers=options.layers)
    )
    ways: dict[str, Callable[[], np.ndarray]] = {
        "predictor": lambda: model.embed(texts),
        "plain": lambda: plain(model, texts, options.batch_size),
    }
    vectors: dict[str, np.ndarray] = {name: way() for name, way in ways.items()}
    times = in_turns(ways, options.repeats)
    lengths = [min(len(ids) + 2, 512) for ids in pieces.encode_batch(texts)]
    speed_ups = ratios(times["plain"], times["predictor"])
    return {
        "texts": len(texts),
        "tokens": {
            "mean": statistics.mean(lengths),
            "median": statistics.median(lengths),
            "most": max(lengths),
        },
        "texts_per_cpu_second": {
            name: len(texts) / each.cpu_seconds for name, each in times.items()
        },
        "ratio": statistics.median(speed_ups),
        "spread": [min(speed_ups), max(speed_ups)],
        "largest_difference": float(np.abs(vectors["plain"] - vectors["predictor"]).max()),
    }


@torch.inference_mode()
def plain(model: Predictor, texts: list[str], batch_size: int) -> np.ndarray:
    """Batches as they come, padded to their longest."""
    vectors = []
    for start in range(0, len(texts), batch_size):
        rows = [
            example.token_ids
            for example in model.tokenizer.pairs(
                texts[start : start + batch_size], max_length=512, truncate="first"
            )
        ]
        longest = max(map(len, rows))
        token_ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])
        states = model.model.encoder(
            token_ids=token_ids, segment_ids=torch.zeros_like(token_ids), mask=mask
        )
        vectors.append(((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).numpy())
    return np.concatenate(vectors)


def memory(rows: int, folder: Path) -> dict[str, Any]:
    pieces = Tokenizer.load(tiny_tokenizer(folder / "tokenizer"))
    model, source = folder / "small", folder / f"{rows}.jsonl"
    if not model.exists():
        save(model, pieces, hidden_size=32, num_layers=1)
    with source.open("w") as file:
        for text in made_texts(rows):
            file.write(json.dumps({"text": text}) + "\n")
    command = [
        sys.executable,
        "-m",
        "bench.cpu.predict",
        "--measure",
        str(model),
        str(source),
        str(folder / f"{rows}.out.jsonl"),
    ]
    measured: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return {"rows": rows, "input_mb": source.stat().st_size / 1e6, **measured}


def memory_here(model: str, source: str, out: str) -> dict[str, float]:
    """What this process holds once the model is loaded, and at most."""
    predictor = load(model)
    predictor.classify(["the whale sails"])
    forget_peak()
    before, begun = peak_mb(), time.monotonic()
    report = predict_file(predictor, source, out, PredictOptions(verb="classify"))
    seconds = time.monotonic() - begun
    return {"loaded_mb": before, "peak_mb": peak_mb(), "rows_per_second": report.rows / seconds}


def forget_peak() -> None:
    """Count the most memory anew; what a process inherits from its parent is otherwise in it."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """The most that this process has held."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def made_texts(count: int) -> list[str]:
    """Texts whose lengths are spread as those of a mixed collection: most are short, a few are very
    long."""
    draw = random.Random(0)
    words = [
        word
        for document in tiny_documents(20)
        for sentence in document
        for word in sentence.split()
    ]
    return [
        " ".join(draw.choices(words, k=min(400, 1 + int(draw.lognormvariate(3.0, 0.9)))))
        for _ in range(count)
    ]


def save(folder: Path, pieces: Tokenizer, *, hidden_size: int, num_layers: int) -> Path:
    torch.manual_seed(0)
    shape = {
        "embedding_size": 64,
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "ffn_size": 4 * hidden_size,
    }
    encoder = EncoderConfig(
        vocab_size=pieces.vocab_size, num_attention_heads=max(1, hidden_size // 64), **shape
    )
    model = Model(
        ModelConfig(encoder=encoder, heads=(HeadConfig(kind="classify", labels=("no", "yes")),))
    )
    return Checkpoint(model=model, tokenizer=pieces).save(folder)


if __name__ == "__main__":
    main()
