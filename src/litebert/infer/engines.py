"""Which engine answers, and how it is opened: a folder in, an engine out. torch is imported only
where it computes or exports.

An exported folder has its own runtime. Any other model is computed by torch, or exported on first
use into a cache (export_cache.py).
"""

import importlib.util
from pathlib import Path
from typing import get_args

from litebert.checks import check_known
from litebert.errors import ConfigError
from litebert.infer.cpu import Processor, processor
from litebert.infer.engine import EngineName
from litebert.infer.exported import Runtime, read_export
from litebert.infer.graph_engine import GraphEngine, Graphs
from litebert.infer.verbs import EngineChoice
from litebert.threads import choose_threads

_PACKAGES: dict[EngineName, tuple[str, ...]] = {
    "torch": (),
    "onnx": ("onnxruntime", "onnx"),
    "openvino": ("openvino", "onnx"),
}
"""What the engines beside torch, a core dependency, need for a checkpoint: to export and run it."""


def is_installed(engine: EngineName) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in _PACKAGES[engine])


FASTEST: dict[Processor, tuple[EngineName, ...]] = {
    "vnni": ("onnx", "openvino", "torch"),
    "avx2": ("onnx", "openvino", "torch"),
    "arm64": ("onnx", "torch"),
}
"""In float32, by processor, the fastest first, from the start of a process to its first answers
(bench.cpu.start). Where there is VNNI OpenVINO then computes a text up to a quarter faster than
ONNX Runtime (bench.cpu.engines). Not measured on arm64. int8 is faster still, and is not chosen
unasked: its answers differ."""


SHOWN: dict[Processor, str] = {
    "vnni": "x86 with VNNI",
    "avx2": "x86 without VNNI",
    "arm64": "arm64",
}


def choose_engine(
    engine: EngineChoice,
    *,
    device: str = "auto",
    dtype: str = "auto",
    compile: bool = False,
    kernels: str = "on",
) -> tuple[EngineName, str]:
    """The engine for a checkpoint, and why. Only torch has GPUs, precisions and kernels."""
    if engine != "auto":
        return engine, "as requested"
    if device not in ("auto", "cpu") or dtype not in ("auto", "float32") or compile:
        return "torch", "of the device, precision or compilation that was requested"
    if kernels != "on":
        return "torch", "of the kernels that were requested"
    if device == "auto" and has_gpu():
        return "torch", "there is a GPU"
    order = FASTEST[kind := processor()]
    name = next(each for each in order if is_installed(each))
    missing = order[: order.index(name)]
    reason = f"the fastest installed in float32 for {SHOWN[kind]}"
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        reason += f"; {' and '.join(missing)} {verb} faster and not installed"
    return name, reason


def has_gpu() -> bool:
    """Whether the system has an NVIDIA GPU, without asking torch."""
    return Path("/dev/nvidiactl").exists()


def check_engine_name(engine: str) -> None:
    check_known("engine", engine, get_args(EngineChoice))


def check_torch_alone(*, device: str, dtype: str, compile: bool, kernels: str) -> None:
    """Refuse what only torch has where another engine computes, rather than ignore it."""
    for flag, is_default in (
        (f"device {device}", device in ("auto", "cpu")),
        (f"dtype {dtype}", dtype in ("auto", "float32")),
        ("compile", not compile),
        (f"kernels {kernels}", kernels == "on"),
    ):
        if not is_default:
            raise ConfigError(
                f"{flag} is for the engine torch, and ONNX Runtime and OpenVINO compute on the "
                "processor; leave it out, or load the checkpoint with --engine torch"
            )


def open_export(
    folder: Path,
    *,
    engine: EngineChoice = "auto",
    batch_tokens: int | None = None,
    threads: int | None = None,
    unverified: bool = False,
) -> GraphEngine:
    """The engine of an exported folder."""
    exported = read_export(folder, unverified=unverified)
    runtime: Runtime = exported.header.runtime
    if engine not in ("auto", runtime):
        instead = "load" if engine == "torch" else "export"
        raise ConfigError(
            f"{folder} was exported for {runtime}, and --engine asks for {engine}; leave the flag "
            f"out, or {instead} the checkpoint for that engine"
        )
    count = choose_threads(threads)
    if runtime == "onnx":
        from litebert.infer.onnx_graphs import OnnxGraphs

        graphs: Graphs = OnnxGraphs(exported, threads=count.count)
    else:
        from litebert.infer.openvino_graphs import OpenvinoGraphs

        graphs = OpenvinoGraphs(exported, threads=count.count)
    opened = GraphEngine(exported, graphs, batch_tokens=batch_tokens)
    opened.threads = count
    return opened
