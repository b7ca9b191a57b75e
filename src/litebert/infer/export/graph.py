"""An ONNX graph under construction: operations in, the bytes of a model out.

Values are named by strings, as in ONNX. A constant is stored once, however often it is used.
Standard operators of opset 21 are written, so that any runtime reads the result; for ONNX Runtime
alone there may be operators of its own. A linear layer is written in one of three ways: in float32,
with inputs quantized as they come (dynamic int8), or with inputs quantized by ranges that were
measured before (static int8).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from litebert.errors import MissingExtraError

try:
    import onnx
    from onnx import helper, numpy_helper
except ImportError as error:
    raise MissingExtraError("onnx", extra="onnx", purpose="litebert export") from error

_OPSET = 21
_IR_VERSION = 10
_ONNX_RUNTIME = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""
Range = tuple[float, float]
"""Least and largest value of an activation."""
_MIN_QUANTIZED = 1024
"""Matrices with fewer weights stay float32: they are small."""


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """How matrices and the inputs of linear layers become int8."""

    precision: Literal["float32", "dynamic", "static"] = "float32"
    limit: int = 127
    """Largest integer of a weight: 127, or 64 for processors whose products of bytes saturate."""
    unsigned: bool = False
    """Whether weights are stored as uint8 around 128, as kernels for AVX2 like them."""
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """By the name of a linear layer's input; only these are quantized in static int8."""


def integers(weight: np.ndarray, *, axis: int, limit: int = 127) -> tuple[np.ndarray, np.ndarray]:
    """Integers from -limit to limit, and a scale for each index along `axis`; zero stays zero."""
    others = tuple(each for each in range(weight.ndim) if each != axis)
    scales = (np.abs(weight).max(others, keepdims=True) / limit).astype(np.float32)
    steps = np.where(scales > 0, scales, 1)
    numbers = np.clip(np.round(weight / steps), -limit, limit).astype(np.int8)
    return numbers, scales.reshape(-1)


class Graph:
    """One graph. Methods that compute return the name of the result. `for_onnx_runtime` allows
    operators that only ONNX Runtime has."""

    def __init__(
        self, quantization: Quantization | None = None, *, for_onnx_runtime: bool = False
    ) -> None:
        self.quantization = quantization or Quantization()
        self.for_onnx_runtime = for_onnx_runtime
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._quantized: dict[str, tuple[str, str, str]] = {}
        self._number = 0

    def input(self, name: str, dtype: type, shape: Sequence[int | str]) -> str:
        self._inputs.append(_describe(name, dtype, shape))
        return name

    def output(self, value: str, name: str, dtype: type, shape: Sequence[int | str]) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(_describe(name, dtype, shape))

    def constant(self, name: str, values: Any) -> str:
        """`name` says what it is: the same name is the same constant."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.asarray(values, order="C"), name)
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(kind, *inputs, count=1, **attributes)[0]

    def ops(self, kind: str, *inputs: str, count: int, **attributes: Any) -> list[str]:
        """For an operator with several results."""
        self._number += 1
        outputs = [f"{kind}_{self._number}_{i}" for i in range(count)]
        self._nodes.append(helper.make_node(kind, list(inputs), outputs, **attributes))
        return outputs

    def own(self, kind: str, *inputs: str) -> str:
        """An operator of ONNX Runtime's own."""
        return self.op(kind, *inputs, domain=_ONNX_RUNTIME)

    def reshape(self, value: str, *shape: int) -> str:
        """0 keeps a length, -1 is what remains."""
        return self.op("Reshape", value, self._shape(shape))

    def norm(
        self, value: str, name: str, weight: np.ndarray, bias: np.ndarray, epsilon: float
    ) -> str:
        scale, shift = self.constant(f"{name}.weight", weight), self.constant(f"{name}.bias", bias)
        return self.op("LayerNormalization", value, scale, shift, axis=-1, epsilon=epsilon)

    def linear(
        self,
        value: str,
        name: str,
        weight: np.ndarray,
        bias: np.ndarray | None = None,
        *,
        range_name: str | None = None,
        rows: str | None = None,
    ) -> str:
        """value · weight + bias, with `weight` as (inputs, outputs). `rows` are flat positions to
        compute alone. `range_name` is the name of the value's range (static int8)."""
        precision = self.quantization.precision if weight.size >= _MIN_QUANTIZED else "float32"
        if precision == "dynamic":
            product = self._dynamic(value, name, weight, rows)
        else:
            static = precision == "static" and range_name in self.quantization.ranges
            if static:
                assert range_name is not None
                value = self._static(value, range_name)
            matrix = (
                self._dequantized(name, weight)
                if precision == "static"
                else self.constant(f"{name}.weight", weight)
            )
            product = self.op("MatMul", self.take(value, rows, weight.shape[0]), matrix)
        if bias is None:
            return product
        return self.op("Add", product, self.constant(f"{name}.bias", bias))

    def take(self, value: str, rows: str | None, size: int) -> str:
        """Of (batch, seq, size) the flat positions `rows`, (batch, chosen); all where None."""
        if rows is None:
            return value
        flat = self.op("Reshape", value, self._shape((-1, size)))
        return self.op("Gather", flat, rows, axis=0)

    def repeated(self, carried: str, result: str) -> "Graph":
        """This graph `count` times: its `result` is the input `carried` of the next time. What the
        other inputs alone decide is computed once; what constants alone decide stays beside its
        reader, since runtimes recognize int8 weights by both."""
        inside = {carried: f"{carried} inside", result: f"{result} inside"}
        changing, given = {carried}, {each.name for each in self._inputs} - {carried}
        once, again = [], []
        for node in self._nodes:
            if changing.isdisjoint(node.input) and not given.isdisjoint(node.input):
                once.append(node)
                given.update(node.output)
                continue
            again.append(node)
            changing.update(node.output)
            for names in (node.input, node.output):
                names[:] = [inside.get(name, name) for name in names]
        before, after = (
            next(_renamed(each, inside[each.name]) for each in values if each.name in inside)
            for values in (self._inputs, self._outputs)
        )
        body = helper.make_graph(
            [*again, helper.make_node("Identity", ["condition"], ["goes on"])],
            "body",
            [_describe("time", np.int64, ()), _describe("condition", np.bool_, ()), before],
            [_describe("goes on", np.bool_, ()), after],
        )
        graph = Graph(self.quantization, for_onnx_runtime=self.for_onnx_runtime)
        graph._inputs = [_describe("count", np.int64, ()), *self._inputs]
        graph._outputs, graph._constants = self._outputs, self._constants
        loop = helper.make_node("Loop", ["count", "", carried], [result], body=body)
        graph._nodes = [*once, loop]
        return graph

    def to_bytes(self, name: str) -> bytes:
        graph = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, list(self._constants.values())
        )
        operators = [helper.make_opsetid("", _OPSET)]
        if self.for_onnx_runtime:
            operators.append(helper.make_opsetid(_ONNX_RUNTIME, 1))
        model = helper.make_model(
            graph,
            opset_imports=operators,
            ir_version=_IR_VERSION,
            producer_name="litebert",
        )
        data: bytes = model.SerializeToString()
        return data

    def _shape(self, shape: Sequence[int]) -> str:
        return self.constant(f"shape {' '.join(map(str, shape))}", np.array(shape, np.int64))

    def _dynamic(self, value: str, name: str, weight: np.ndarray, rows: str | None) -> str:
        """The range is that of all rows, so that queries of a few are quantized as all would be."""
        if value not in self._quantized:
            numbers, step, zero = self.ops("DynamicQuantizeLinear", value, count=3)
            self._quantized[value] = numbers, step, zero
        numbers, step, zero = self._quantized[value]
        matrix, scales = integers(weight, axis=1, limit=self.quantization.limit)
        chosen = self.take(numbers, rows, weight.shape[0])
        inputs = [chosen, self._integers(name, matrix), zero]
        if self.quantization.unsigned:
            inputs.append(self.constant("one hundred twenty-eight", np.uint8(128)))
        product = self.op("Cast", self.op("MatMulInteger", *inputs), to=onnx.TensorProto.FLOAT)
        steps = self.op("Mul", step, self.constant(f"{name}.scales", scales))
        return self.op("Mul", product, steps)

    def _static(self, value: str, range_name: str) -> str:
        low, high = self.quantization.ranges[range_name]
        low, high = min(low, 0.0), max(high, 0.0)
        step = np.float32((high - low) / 255 or 1.0)
        zero = np.uint8(np.clip(np.round(-low / step), 0, 255))
        settings = (
            self.constant(f"{range_name}.step", step),
            self.constant(f"{range_name}.zero", zero),
        )
        return self.op("DequantizeLinear", self.op("QuantizeLinear", value, *settings), *settings)

    def _dequantized(self, name: str, weight: np.ndarray) -> str:
        matrix, scales = integers(weight, axis=1, limit=self.quantization.limit)
        zeros = self.constant(f"{name}.zeros", np.zeros(scales.shape, np.int8))
        return self.op(
            "DequantizeLinear",
            self.constant(f"{name}.integers", matrix),
            self.constant(f"{name}.scales", scales),
            zeros,
            axis=1,
        )

    def _integers(self, name: str, matrix: np.ndarray) -> str:
        if self.quantization.unsigned:
            matrix = (matrix.astype(np.int16) + 128).astype(np.uint8)
        return self.constant(f"{name}.integers", matrix)


def _describe(name: str, dtype: type, shape: Sequence[int | str]) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, list(shape))


def _renamed(value: Any, name: str) -> Any:
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(value)
    copy.name = name
    return copy
