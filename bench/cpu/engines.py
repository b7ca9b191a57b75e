"""Speed of the engines on a CPU, beside Hugging Face's SDPA and beside whole graphs. Prints one
JSON object.

    python -m bench.cpu.engines
    python -m bench.cpu.engines --shapes litebert-small --threads 1 --rounds 5

Random weights. Batches of one length: 1 × 16, 1 × 64, 1 × 128 and 16 × 32 tokens. Mixed: 256 rows
of 8 to 128 tokens, which Hugging Face reads 32 at a time, in the order given and sorted by length.
All contenders take turns; a time is the least of the rounds, since machines are noisy. "whole" is
the same runtime's graph of all layers, fully quantized; `layers` is the time of our engine, which
calls one layer's graph, divided by the whole graph's. transformers has no pre-norm rotary ALBERT,
so litebert's shapes are compared with its ALBERT of the same sizes.
"""

import argparse
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import openvino
import torch
from transformers import AlbertConfig, AlbertModel

from bench.common.peers import huggingface_settings
from bench.common.results import add_out, begin, publish
from bench.common.timing import in_turns
from litebert.config import PRESETS, ModelConfig
from litebert.infer.cpu import cpu_features, processor
from litebert.infer.engine import Engine
from litebert.infer.engines import open_export
from litebert.infer.export.calibrate import measure_ranges
from litebert.infer.export.check import BUILT_IN
from litebert.infer.export.folder import ExportOptions, weights_of, write_export
from litebert.infer.export.graph import Quantization
from litebert.infer.export.whole import whole_graph
from litebert.infer.exported import Precision, Runtime
from litebert.infer.graph_engine import GraphEngine
from litebert.infer.torch_engine import TorchEngine
from litebert.model.model import Model
from litebert.models.index import default_model
from litebert.packing import HostBatch
from litebert.storage.checkpoint import Checkpoint
from litebert.text.tokenizer import Tokenizer

BATCHES = {"1 x 16": (1, 16), "1 x 64": (1, 64), "1 x 128": (1, 128), "16 x 32": (16, 32)}
MIXED_ROWS, MIXED_BATCH = 256, 32
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
    parser.add_argument("--rounds", type=int, default=10)
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    report: dict[str, Any] = {
        "processor": processor(),
        "features": [name for name in FEATURES if name in cpu_features()],
    }
    for shape in options.shapes:
        for threads in options.threads:
            torch.set_num_threads(threads)
            report[f"{shape}, {threads} threads"] = measure(shape, threads, options.rounds)
    publish(report, options.out)


def measure(shape: str, threads: int, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    encoder = PRESETS[shape]
    model = Model(ModelConfig(encoder=encoder)).eval()
    checkpoint = Checkpoint(model=model, tokenizer=Tokenizer.load(default_model().folder))
    settings = AlbertConfig(**huggingface_settings(encoder), attn_implementation="sdpa")
    peer = AlbertModel(settings).eval()
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        engines: dict[str, Engine] = {"torch": TorchEngine(checkpoint, threads=threads)}
        for name, runtime, precision in EXPORTS:
            (out := Path(folder) / name).mkdir()
            write_export(checkpoint, out, ExportOptions(runtime=runtime, precision=precision))
            engines[name] = open_export(out, threads=threads, unverified=True)
        wholes = whole_runners(checkpoint, threads)
        draw, report = np.random.default_rng(0), {}
        for title, (rows, seq) in BATCHES.items():
            ids = draw.integers(5, encoder.vocab_size, (rows, seq))
            calls = {"huggingface": lambda ids=ids: run_peer(peer, ids, None)}
            calls |= {name: steps(engine, ids) for name, engine in engines.items()}
            calls |= {f"{name} whole": lambda run=run, ids=ids: run(ids) for name, run in wholes}
            report[title] = summary(calls, rounds, ("huggingface",))
        lengths = draw.integers(8, 129, MIXED_ROWS)
        texts = [draw.integers(5, encoder.vocab_size, length) for length in lengths.tolist()]
        calls = {
            "huggingface padded": lambda: padded(peer, texts),
            "huggingface buckets": lambda: padded(peer, sorted(texts, key=len)),
        }
        calls |= {name: mixed(engine, texts) for name, engine in engines.items()}
        report["256 rows of 8 to 128"] = summary(calls, max(2, rounds // 3), tuple(calls)[:2])
    return report


def summary(calls: dict[str, Call], rounds: int, peers: tuple[str, ...]) -> dict[str, Any]:
    """Milliseconds, how many times faster than the peers, and than whole graphs."""
    for call in calls.values():
        call()
    times = {name: min(each.clock) for name, each in in_turns(calls, rounds).items()}
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


def whole_runners(
    checkpoint: Checkpoint, threads: int
) -> list[tuple[str, Callable[[np.ndarray], Any]]]:
    """One graph of all layers in int8, in both runtimes."""
    config, weights = checkpoint.model.config, weights_of(checkpoint)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    dynamic = whole_graph(config, weights, Quantization(precision="dynamic"))
    session = onnxruntime.InferenceSession(dynamic, options, providers=["CPUExecutionProvider"])
    ranges = measure_ranges(checkpoint, BUILT_IN)
    static = whole_graph(config, weights, Quantization(precision="static", ranges=ranges))
    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(io.BytesIO(static)),
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
