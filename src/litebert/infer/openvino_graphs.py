"""Exported graphs in OpenVINO, on the processor."""

import contextlib
import queue
import threading
from typing import Any

import numpy as np

from litebert.errors import CheckpointError, MissingExtraError
from litebert.infer.engine import EngineName
from litebert.infer.exported import Exported
from litebert.infer.graph_engine import KEPT_TOKENS, Arrays, Graphs, failed

try:
    import openvino
except ImportError as error:
    raise MissingExtraError("openvino", extra="openvino", purpose="the engine openvino") from error

CORE = openvino.Core()
"""One for the life of the process: each gives the thread that loads its plugin a signal stack of a
few kilobytes (OpenVINO 2026.4), which is unmapped after two of them are gone: a signal is then a
segmentation fault."""
_loading = threading.Thread(target=CORE.get_property, args=("CPU", "FULL_DEVICE_NAME"))
_loading.start()  # the plugin, in a thread that ends: ours keeps the stack that it has
_loading.join()
_WIDE = "masked"
"""The graph whose outputs are as wide as the vocabulary."""
_SHAPES = 64
"""Shapes of inputs whose compiled code is kept; the default of 5,000 is a leak with mixed
lengths."""


class OpenvinoGraphs(Graphs):
    """One compiled model for each graph, and as many requests as threads have run it at once."""

    name: EngineName = "openvino"

    def __init__(self, exported: Exported, *, threads: int | None = None) -> None:
        self._exported = exported
        self._settings: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            # else it computes in bfloat16 where the processor can
            "INFERENCE_PRECISION_HINT": "f32",
            "CPU_RUNTIME_CACHE_CAPACITY": _SHAPES,
        }
        if threads is not None:
            self._settings["INFERENCE_NUM_THREADS"] = threads
        self._models: dict[str, _Compiled] = {}
        self._lock = threading.Lock()
        self._grown: set[str] = set()
        """Graphs that were run on a large batch since their memory was returned."""

    def run(self, graph: str, inputs: Arrays) -> dict[str, np.ndarray]:
        with self._lock:
            if graph not in self._models:
                self._models[graph] = self._load(graph)
        try:
            return self._models[graph].run(inputs)
        except Exception as error:
            raise CheckpointError(failed(self._exported, graph, error)) from error
        finally:
            # after the run: another thread's release would not find its memory before
            if graph == _WIDE or _num_rows(inputs) > KEPT_TOKENS:
                self._grown.add(graph)

    def release(self) -> None:
        busy = set()
        while True:
            try:
                graph = self._grown.pop()
            except KeyError:
                break
            if not self._models[graph].release():
                busy.add(graph)  # for the thread that runs it
        self._grown |= busy

    def _load(self, graph: str) -> "_Compiled":
        path = self._exported.graph(graph)
        try:
            return _Compiled(CORE.compile_model(str(path), "CPU", self._settings))
        except Exception as error:
            raise CheckpointError(failed(self._exported, graph, error)) from error


class _Compiled:
    """A compiled model, which several threads may run."""

    def __init__(self, model: Any) -> None:
        self._model = model
        # an output has the names of all values that it is
        self._names = [sorted(output.names) for output in model.outputs]
        self._idle: queue.SimpleQueue[_Request] = queue.SimpleQueue()

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        try:
            request = self._idle.get_nowait()
        except queue.Empty:
            request = _Request(self._model.create_infer_request())
        try:
            request.set(inputs)
            request.infer()
            results: dict[str, np.ndarray] = {}
            for number, names in enumerate(self._names):
                results |= dict.fromkeys(names, request.output(number))
            return results
        finally:
            self._idle.put(request)

    def release(self) -> bool:
        """Give back what runs needed; False where one is under way."""
        while not self._idle.empty():
            with contextlib.suppress(queue.Empty):
                self._idle.get_nowait()  # a request keeps its last inputs
        try:
            self._model.release_memory()
        except RuntimeError:
            return False
        return True


class _Request:
    """One run at a time. An input that is the array of the run before is not set again, as a
    layer's mask: setting all inputs takes as long as a layer of a small model."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._inputs: dict[str, tuple[np.ndarray, np.ndarray, Any]] = {}
        """Of each input the array, as one block of memory and as a tensor: all stay alive, since
        the request holds a bare address."""

    def set(self, inputs: Arrays) -> None:
        for name, array in inputs.items():
            if name in self._inputs and self._inputs[name][0] is array:
                continue
            block = np.asarray(array, order="C")
            tensor = openvino.Tensor(block, shared_memory=True)
            self._request.set_tensor(name, tensor)
            self._inputs[name] = array, block, tensor

    def infer(self) -> None:
        self._request.infer()

    def output(self, number: int) -> np.ndarray:
        return np.array(self._request.get_output_tensor(number).data)


def _num_rows(inputs: Arrays) -> int:
    """Tokens, texts or masks of a batch."""
    if "states" not in inputs:
        return inputs["token_ids"].size
    states: np.ndarray = inputs["states"]
    return states.size // int(states.shape[-1])
