"""Speed of the engines on a CPU, beside Hugging Face's SDPA and beside whole graphs. Prints one
JSON object at the end, and a line for each shape of batch as it comes.

    python -m bench.cpu.engines
    python -m bench.cpu.engines --shapes litebert-small --threads 1 --rounds 10

Random weights. Batches of one length: 1 × 8, 16, 64, 128 and 16 × 32 tokens. Mixed, with the
most threads: --rows rows of 8 to 128 tokens, which Hugging Face reads 32 at a time, in the order
given and sorted by length. All contenders take turns; a time is the least of the rounds, since
machines are noisy, and turns are apart, since threads of some engines wait in a busy loop. "whole"
is the same runtime's graph of all layers, fully quantized, with the same optimizations switched
off as in ours; `layers` is the time of our engine, which has one layer's graph, divided by the
whole graph's. transformers has no pre-norm rotary ALBERT, so litebert's shapes are compared with
its ALBERT of the same sizes.

`fastest` are the engines in float32 for this processor, by the geometric mean of their times over
all batches: what infer/engines.py chooses by.
"""

import argparse
import io
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from transformers import AlbertConfig, AlbertModel

from bench.common.peers import huggingface_settings
from bench.common.results import add_out, begin, publish
from bench.common.timing import in_turns
from litebert.config import PRESETS, ModelConfig
from litebert.files import write_json
from litebert.infer.cpu import cpu_features, processor, weight_limit
from litebert.infer.engine import Engine
from litebert.infer.engines import open_export
from litebert.infer.export.calibrate import measure_ranges
from litebert.infer.export.check import BUILT_IN
from litebert.infer.export.folder import ExportOptions, weights_of, write_export
from litebert.infer.export.graph import Quantization
from litebert.infer.export.whole import whole_graph
from litebert.infer.exported import Precision, Runtime
from litebert.infer.graph_engine import GraphEngine
from litebert.infer.onnx_graphs import SLOW
from litebert.infer.openvino_graphs import CORE
from litebert.infer.torch_engine import TorchEngine
from litebert.model.model import Model
from litebert.models.index import default_model
from litebert.packing import HostBatch
from litebert.storage.checkpoint import Checkpoint
from litebert.text.tokenizer import Tokenizer

BATCHES = {
    "1 x 8": (1, 8),
    "1 x 16": (1, 16),
    "1 x 64": (1, 64),
    "1 x 128": (1, 128),
    "16 x 32": (16, 32),
}
MIXED_BATCH = 32
CALLS = 5
"""In a turn of one contender, for batches of one length."""
PAUSE = 0.25
"""Seconds before a turn, in which the threads of the contender before go to sleep."""
EXPORTS: tuple[tuple[str, Runtime, Precision], ...] = (
    ("onnx float32", "onnx", "float32"),
    ("onnx int8", "onnx", "int8"),
    ("openvino float32", "openvino", "float32"),
    ("openvino int8", "openvino", "int8"),
)
FEATURES = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimddp")
Call = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", default=["albert-base-v2", "litebert-small"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=256, help="of mixed lengths; 0 for none")
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    report: dict[str, Any] = {
        "processor": processor(),
        "features": [name for name in FEATURES if name in cpu_features()],
    }

    def record(title: str, result: dict[str, Any]) -> None:
        report[title] = result
        short = {name: round(each, 2) for name, each in result["ms"].items()}
        print(f"{title}, ms: {short}", file=sys.stderr, flush=True)
        if options.out is not None:
            write_json(options.out, report)

    for shape in options.shapes:
        measure(shape, options.threads, options.rounds, options.rows, record)
    report["fastest"] = fastest(report)
    publish(report, options.out)


def measure(
    shape: str,
    all_threads: Sequence[int],
    rounds: int,
    rows: int,
    record: Callable[[str, dict[str, Any]], None],
) -> None:
    torch.manual_seed(0)
    encoder = PRESETS[shape]
    model = Model(ModelConfig(encoder=encoder)).eval()
    checkpoint = Checkpoint(model=model, tokenizer=Tokenizer.load(default_model().folder))
    settings = AlbertConfig(**huggingface_settings(encoder), attn_implementation="sdpa")
    peer = AlbertModel(settings).eval()
    graphs = whole_graphs(checkpoint)
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        for name, runtime, precision in EXPORTS:
            (out := Path(folder) / name).mkdir()
            write_export(checkpoint, out, ExportOptions(runtime=runtime, precision=precision))
        for threads in all_threads:
            torch.set_num_threads(threads)
            draw = np.random.default_rng(0)
            engines: dict[str, Engine] = {"torch": TorchEngine(checkpoint, threads=threads)}
            for name, _, _ in EXPORTS:
                engines[name] = open_export(Path(folder) / name, threads=threads, unverified=True)
            wholes = whole_runners(*graphs, threads)
            title = f"{shape}, {threads} threads"
            for batch, (count, seq) in BATCHES.items():
                ids = draw.integers(5, encoder.vocab_size, (count, seq))
                calls = {"huggingface": lambda ids=ids: run_peer(peer, ids, None)}
                calls |= {name: steps(engine, ids) for name, engine in engines.items()}
                calls |= {
                    f"{name} whole": lambda run=run, ids=ids: run(ids) for name, run in wholes
                }
                for call in calls.values():
                    call()
                result = summary(calls, rounds, ("huggingface",), turn=CALLS)
                record(f"{title}, {batch}", result)
            if rows and threads == max(all_threads):
                lengths = draw.integers(8, 129, rows)
                texts = [draw.integers(5, encoder.vocab_size, each) for each in lengths.tolist()]
                calls = {
                    "huggingface padded": lambda texts=texts: padded(peer, texts),
                    "huggingface buckets": lambda texts=texts: padded(peer, sorted(texts, key=len)),
                }
                calls |= {name: mixed(engine, texts) for name, engine in engines.items()}
                for call in calls.values():
                    call()
                result = summary(calls, max(1, rounds // 2), tuple(calls)[:2])
                record(f"{title}, {rows} rows of 8 to 128", result)


def fastest(report: dict[str, Any]) -> list[str]:
    """Engines in float32, the fastest first."""
    measured = [each["ms"] for each in report.values() if isinstance(each, dict)]
    means = {
        name: float(np.exp(np.mean([np.log(each[name]) for each in measured])))
        for name in ("torch", "onnx float32", "openvino float32")
    }
    return [name.partition(" ")[0] for name in sorted(means, key=lambda name: means[name])]


def summary(
    calls: dict[str, Call], rounds: int, peers: tuple[str, ...], *, turn: int = 1
) -> dict[str, Any]:
    """Milliseconds, how many times faster than the peers, and than whole graphs."""
    turns = in_turns(calls, rounds, calls=turn, pause=PAUSE)
    times = {name: min(each.clock) for name, each in turns.items()}
    result: dict[str, Any] = {"ms": {name: 1e3 * seconds for name, seconds in times.items()}}
    for peer in peers:
        result[f"times {peer}"] = {
            name: times[peer] / seconds for name, seconds in times.items() if name not in peers
        }
    wholes = [name for name in times if name.endswith(" whole")]
    result["layers"] = {name: times[name.removesuffix(" whole")] / times[name] for name in wholes}
    return result


def steps(engine: Engine, ids: np.ndarray) -> Call:
    """The last states of a batch."""
    batch = HostBatch(arrays={"token_ids": ids}, longest=ids.shape[1])
    if isinstance(engine, GraphEngine):
        return lambda: engine.states(batch)
    assert isinstance(engine, TorchEngine)
    tensor = torch.from_numpy(ids)

    @torch.inference_mode()
    def run() -> Any:
        return engine.model.encoder(token_ids=tensor)

    return run


def mixed(engine: Engine, texts: list[np.ndarray]) -> Call:
    def run() -> None:
        vectors = np.zeros((len(texts), engine.config.encoder.hidden_size), np.float32)
        with torch.inference_mode():
            engine.pool_into(vectors, iter([(0, texts)]), "mean")

    return run


@torch.inference_mode()
def run_peer(peer: Any, ids: np.ndarray, mask: np.ndarray | None) -> Any:
    chosen = None if mask is None else torch.from_numpy(mask)
    return peer(input_ids=torch.from_numpy(ids), attention_mask=chosen).last_hidden_state


def padded(peer: Any, texts: list[np.ndarray]) -> None:
    for at in range(0, len(texts), MIXED_BATCH):
        few = texts[at : at + MIXED_BATCH]
        width = max(map(len, few))
        mask = np.arange(width) < np.array([len(each) for each in few])[:, None]
        ids = np.zeros(mask.shape, np.int64)
        ids[mask] = np.concatenate(few)
        run_peer(peer, ids, mask.astype(np.int64))


def whole_graphs(checkpoint: Checkpoint) -> tuple[bytes, bytes]:
    """One graph of all layers in int8: dynamic for ONNX Runtime, static for OpenVINO."""
    config, weights = checkpoint.model.config, weights_of(checkpoint)
    limit = weight_limit()
    dynamic = Quantization(precision="dynamic", limit=limit)
    ranges = measure_ranges(checkpoint, BUILT_IN)
    static = Quantization(precision="static", limit=limit, ranges=ranges)
    return whole_graph(config, weights, dynamic), whole_graph(config, weights, static)


def whole_runners(
    dynamic: bytes, static: bytes, threads: int
) -> list[tuple[str, Callable[[np.ndarray], Any]]]:
    """Whole graphs in both runtimes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        dynamic, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOW
    )
    compiled = CORE.compile_model(
        CORE.read_model(io.BytesIO(static)),
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request = compiled.create_infer_request()

    def inputs(ids: np.ndarray) -> dict[str, np.ndarray]:
        zeros = np.zeros_like(ids)
        return {"input_ids": ids, "attention_mask": zeros + 1, "token_type_ids": zeros}

    return [
        ("onnx int8", lambda ids: session.run(None, inputs(ids))),
        ("openvino int8", lambda ids: request.infer(inputs(ids), share_inputs=True)),
    ]


if __name__ == "__main__":
    main()
