"""Exported graphs in ONNX Runtime, on the processor."""

import threading
from typing import Any

import numpy as np

from litebert.errors import CheckpointError, MissingExtraError
from litebert.infer.engine import EngineName
from litebert.infer.exported import Exported
from litebert.infer.graph_engine import Arrays, Graphs, failed
from litebert.infer.plan import layer_graphs

try:
    import onnxruntime
except ImportError as error:
    raise MissingExtraError("onnxruntime", extra="onnx", purpose="the engine onnx") from error

_ERRORS_ONLY = 3
_RETURN_MEMORY = ("memory.enable_memory_arena_shrinkage", "cpu:0")
"""A long input would otherwise leave its memory with the process."""


class OnnxGraphs(Graphs):
    """One session for each graph."""

    name: EngineName = "onnx"

    def __init__(self, exported: Exported, *, threads: int | None = None) -> None:
        self._exported, self._threads = exported, threads or 0
        plan = layer_graphs(exported.config.encoder)
        self._layers = {each.name for application in plan for each in application}
        self._sessions: dict[str, tuple[Any, list[str]]] = {}
        self._lock = threading.Lock()
        self._options = onnxruntime.RunOptions()
        self._options.add_run_config_entry(*_RETURN_MEMORY)
        self._options.log_severity_level = _ERRORS_ONLY

    def run(self, graph: str, inputs: Arrays) -> dict[str, np.ndarray]:
        session, names = self._session(graph)
        try:
            return dict(zip(names, session.run(names, dict(inputs), self._options), strict=True))
        except Exception as error:
            raise CheckpointError(failed(self._exported, graph, error)) from error

    def _session(self, graph: str) -> tuple[Any, list[str]]:
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
                self._exported.read_graph(graph), options, providers=["CPUExecutionProvider"]
            )
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(failed(self._exported, graph, error)) from error
        return session, [output.name for output in session.get_outputs()]
