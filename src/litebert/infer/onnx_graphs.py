"""Exported graphs in ONNX Runtime, on the processor."""

import threading
from typing import Any

import numpy as np

from litebert.errors import CheckpointError, MissingExtraError
from litebert.infer.engine import EngineName
from litebert.infer.exported import Exported
from litebert.infer.graph_engine import KEPT_TOKENS, Arrays, Graphs, failed
from litebert.infer.plan import layer_graphs

try:
    import onnxruntime
except ImportError as error:
    raise MissingExtraError("onnxruntime", extra="onnx", purpose="the engine onnx") from error

_ERRORS_ONLY = 3
_RETURN_MEMORY = ("memory.enable_memory_arena_shrinkage", "cpu:0")
"""A long input would otherwise leave its memory with the process."""
SLOW = ["SkipLayerNormFusion"]
"""Optimizations that are none: the fused norm adds number by number, and takes four times as long
as an addition and a norm."""


class OnnxGraphs(Graphs):
    """One session for each graph."""

    name: EngineName = "onnx"
    rotates = True

    def __init__(self, exported: Exported, *, threads: int | None = None) -> None:
        self._exported, self._threads = exported, threads or 0
        plan = layer_graphs(exported.config.encoder)
        self._layers = {each.name for application in plan for each in application}
        self._sessions: dict[str, tuple[Any, list[str]]] = {}
        self._lock = threading.Lock()
        self._keeping, self._returning = onnxruntime.RunOptions(), onnxruntime.RunOptions()
        self._returning.add_run_config_entry(*_RETURN_MEMORY)
        for options in (self._keeping, self._returning):
            options.log_severity_level = _ERRORS_ONLY
        self._grown: set[str] = set()
        """Layers that were run on a large batch since their memory was returned."""

    def run(self, graph: str, inputs: Arrays) -> dict[str, np.ndarray]:
        session, names = self._session(graph)
        is_layer = graph in self._layers
        try:
            outputs = session.run(names, inputs, self._keeping if is_layer else self._returning)
        except Exception as error:
            raise CheckpointError(failed(self._exported, graph, error)) from error
        if is_layer:
            rows, seq = inputs["states"].shape[:2]
            if rows * seq > KEPT_TOKENS:
                self._grown.add(graph)
        return dict(zip(names, outputs, strict=True))

    def release(self) -> None:
        while True:
            try:
                graph = self._grown.pop()
            except KeyError:  # also where another thread has taken the last one
                return
            session, names = self._session(graph)
            # memory is returned after a run alone: a token's will do
            inputs = {each.name: _one(each.shape, each.type) for each in session.get_inputs()}
            session.run(names, inputs, self._returning)

    def _session(self, graph: str) -> tuple[Any, list[str]]:
        if graph not in self._sessions:
            with self._lock:
                if graph not in self._sessions:
                    self._sessions[graph] = self._load(graph)
        return self._sessions[graph]

    def _load(self, graph: str) -> tuple[Any, list[str]]:
        options = onnxruntime.SessionOptions()
        is_layer = graph in self._layers
        options.intra_op_num_threads = self._threads if is_layer else 1
        if len(self._layers) > 1:
            # each session has threads of its own, and those of one layer would spin while the next
            # one computes
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        try:
            session = onnxruntime.InferenceSession(
                self._exported.read_graph(graph),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=SLOW,
            )
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(failed(self._exported, graph, error)) from error
        return session, [output.name for output in session.get_outputs()]


def _one(shape: list[int | str], kind: str) -> np.ndarray:
    """Zeros for an input, as little as its shape allows."""
    dtype = np.int64 if kind == "tensor(int64)" else np.float32
    return np.zeros([each if isinstance(each, int) else 1 for each in shape], dtype)
