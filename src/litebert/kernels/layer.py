"""The fast layer: what model/layers.py computes, over the same modules, with the kernels of a gate.

What the gate decided is not checked again here. Four choices depend on the call and are made
here: whether gradients are wanted, whether rows are packed, how long they are, and whether dropout
stands between a linear layer and the residual.

- Query, key and value are one matmul with one gradient where our attention reads them as one
  tensor. A key's bias has no gradient there: softmax does not see what all keys share. With rotary
  positions it does: each key has the bias rotated to its own position.
- A pre-norm's backward sums the gradient of the residual, which is the gradient of the bias of the
  last linear layer: that bias is a constant in the matmul, which also adds the residual. Attention
  weights sum to 1 unless some are dropped, so the gradient of the value's bias follows from it too.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.kernels.gate import LONG, SHORT, Gate
from litebert.kernels.linear import FusedProjection, bias_gradients, concatenated, linear
from litebert.model.layers import (
    Adapters,
    Attention,
    Chosen,
    FeedForward,
    Heads,
    Layer,
    States,
    residual,
    scaled_dot_product,
)
from litebert.model.positions import KeyMask, Needed, Packing, Rotation

if TYPE_CHECKING:
    from litebert.kernels.attention.rotary import Rotary

Kernel = Callable[..., Tensor]


def fast_layer(gate: Gate) -> Layer:
    """`apply_layer` with the kernels that the gate has on."""

    def layer(
        attention: Attention,
        feed_forward: FeedForward,
        states: States,
        mask: KeyMask | Packing | None,
        needed: Needed | None = None,
        rotate: Rotation | None = None,
        adapters: Adapters | None = None,
    ) -> Chosen:
        assert adapters is None, "the gate gives such a model the plain layer"
        attended = _attention(gate, attention, states, mask, needed, rotate)
        return _feed_forward(gate, feed_forward, attended)

    return layer


def _attention(
    gate: Gate,
    module: Attention,
    states: States,
    mask: KeyMask | Packing | None,
    needed: Needed | None,
    rotate: Rotation | None = None,
) -> Chosen:
    dropout = module.weight_dropout if module.training else 0.0
    kernel = _kernel(gate, mask, needed, dropout)
    fuses_norm = _fuses_norm(gate, module)
    is_fused = kernel is not None and gate.linear
    norm_has_value_bias = fuses_norm and is_fused and not dropout

    def attend(x: Tensor) -> Tensor:
        inputs: list[tuple[Tensor, tuple[str, ...]]] = [(x, ("query", "key", "value"))]
        if needed is not None:
            inputs = [(needed.of(x), ("query",)), (x, ("key", "value"))]
        if not is_fused:
            query, key, value = (
                module.heads(tensor)
                for source, names in inputs
                for tensor in _project(gate, module, source, names)
            )
            heads = [query, key, value]
            return _attend(gate, kernel, heads, mask, needed, dropout, rotate).flatten(2)
        parts = [
            _project_together(
                module,
                source,
                names,
                value_bias=not norm_has_value_bias,
                key_bias=rotate is not None,
            )
            for source, names in inputs
        ]
        assert kernel is not None
        assert isinstance(mask, Packing)
        return _call(kernel, parts, mask, needed, dropout, rotate).flatten(2)

    if fuses_norm:
        from litebert.kernels.norm import norm_with_skip

        bias = module.value.bias if norm_has_value_bias else None
        skip, normed = norm_with_skip(states, module.norm, module.output, bias)
        skip = skip if needed is None else needed.of(skip)
        return _add_linear(gate, module, "output", attend(normed), skip)
    return residual(module, states, needed, lambda x: _linear(module, "output", attend(x)))


def _feed_forward(gate: Gate, module: FeedForward, states: Chosen) -> Chosen:
    is_fused = gate.feed_forward and not gate.quantizes and torch.is_grad_enabled()

    def fused(x: Tensor, outer_bias: Tensor, skip: Tensor | None = None) -> Tensor:
        from litebert.kernels.feed_forward import feed_forward

        is_tanh = module.activation.approximate == "tanh"
        weights = module.inner.weight, module.inner.bias, module.outer.weight, outer_bias
        return feed_forward(x, *weights, skip, is_tanh=is_tanh, tuned=gate.linear)

    def activated(x: Tensor) -> Tensor:
        inner: Tensor = module.activation(_linear(module, "inner", x))
        return inner

    if _fuses_norm(gate, module):
        from litebert.kernels.norm import norm_with_skip

        skip, normed = norm_with_skip(states, module.norm, module.outer)
        if is_fused:
            return fused(normed, module.outer.bias.detach(), skip)
        return _add_linear(gate, module, "outer", activated(normed), skip)
    if is_fused:
        return residual(module, states, None, lambda x: fused(x, module.outer.bias))
    return residual(module, states, None, lambda x: _linear(module, "outer", activated(x)))


def _fuses_norm(gate: Gate, module: Attention | FeedForward) -> bool:
    """Whether the norm's backward has the bias gradients: nothing may stand between the last linear
    layer and the residual."""
    return gate.norm and torch.is_grad_enabled() and isinstance(module.dropout, nn.Identity)


# attention over heads


def _kernel(
    gate: Gate, mask: KeyMask | Packing | None, needed: Needed | None, dropout: float
) -> Kernel | None:
    """Our attention for these rows, or None for torch's."""
    if not gate.attention or not isinstance(mask, Packing):
        return None
    longest = max(mask.longest, _queries(mask, needed)[1])
    if longest <= SHORT and not dropout:
        from litebert.kernels.attention.short import short_attention

        return short_attention
    if longest <= LONG:
        from litebert.kernels.attention.long import long_attention

        return long_attention
    return None


def _queries(mask: Packing, needed: Needed | None) -> tuple[Tensor, int]:
    """Bounds of the queries of packed rows, and the most of a row."""
    if needed is None:
        return mask.bounds, mask.longest
    assert needed.bounds is not None, "the needed positions of a packed batch have bounds"
    return needed.bounds, needed.longest


def _attend(
    gate: Gate,
    kernel: Kernel | None,
    heads: list[Heads],
    mask: KeyMask | Packing | None,
    needed: Needed | None,
    dropout: float,
    rotate: Rotation | None = None,
) -> Heads:
    """Attention of query, key and value that are a tensor each."""
    if kernel is not None and isinstance(mask, Packing):
        return _call(kernel, [each.unsqueeze(2) for each in heads], mask, needed, dropout, rotate)
    if rotate is not None:
        query, key, value = heads
        heads = [rotate.apply(query, needed), rotate.apply(key), value]
    if gate.varlen and isinstance(mask, Packing):
        from torch.nn.attention.varlen import varlen_attn

        assert not dropout, "Gate.packs says where packed rows have attention dropout"
        bounds, longest = _queries(mask, needed)
        query, key, value = (
            each.flatten(0, 1) for each in heads
        )  # views; indexing would copy in backward
        attended = varlen_attn(query, key, value, bounds, mask.bounds, longest, mask.longest)
        assert isinstance(attended, Tensor)
        return attended.unsqueeze(0)
    query, key, value = heads
    return scaled_dot_product(query, key, value, mask, needed, dropout=dropout)


def _call(
    kernel: Kernel,
    parts: Sequence[Tensor],
    mask: Packing,
    needed: Needed | None,
    dropout: float,
    rotate: Rotation | None = None,
) -> Heads:
    """Our attention of tensors (batch, seq, number of them, heads, size) that have query, key and
    value side by side in one, two or three."""
    bounds, longest = _queries(mask, needed)
    flat = [tensor.flatten(0, 1) for tensor in parts]
    # a seed on the device: the same weights are dropped forward and backward
    drops = (
        {"seed": torch.randint(1 << 62, (), device=flat[0].device), "dropout": dropout}
        if dropout
        else {}
    )
    options = drops if rotate is None else drops | {"rotary": _rotary(rotate, needed)}
    attended = kernel(flat, bounds, mask.bounds, longest, mask.longest, **options)
    return attended.unsqueeze(0)


def _rotary(rotate: Rotation, needed: Needed | None) -> "Rotary":
    from litebert.kernels.attention.rotary import Rotary

    queries = None if needed is None else rotate.of_needed(needed).flatten()
    return Rotary(rotate.cos, rotate.sin, rotate.positions.flatten(), queries)


# linear layers, by name: those of an attention or feed-forward, or their 8-bit ones


def _quantized(module: nn.Module, *names: str) -> Any:
    """The 8-bit linear layer of these names, or None where none is quantized."""
    layers: Any = getattr(module, "quantized", None)
    return None if layers is None else layers[" ".join(names)]


def _linear(module: nn.Module, name: str, x: Tensor) -> Tensor:
    quantized = _quantized(module, name)
    out: Tensor = getattr(module, name)(x) if quantized is None else quantized(x)
    return out


def _add_linear(gate: Gate, module: nn.Module, name: str, x: Tensor, skip: Tensor) -> Tensor:
    """`skip` plus a linear layer whose bias is a constant."""
    quantized, last = _quantized(module, name), getattr(module, name)
    if quantized is not None:
        mapped: Tensor = quantized(x, is_constant=True)
        return skip + mapped
    if gate.linear:
        return linear(x, last.weight, last.bias.detach(), skip)
    return skip + F.linear(x, last.weight, last.bias.detach())


def _project(
    gate: Gate, module: Attention, x: Tensor, names: tuple[str, ...]
) -> tuple[Tensor, ...]:
    """The named linear layers of the same states, an output each."""
    quantized, linears = _quantized(module, *names), [getattr(module, name) for name in names]
    if quantized is not None:
        return torch.split(quantized(x), [each.out_features for each in linears], -1)
    if gate.linear and len(linears) > 1:
        parameters = [parameter for each in linears for parameter in (each.weight, each.bias)]
        projected: tuple[Tensor, ...] = FusedProjection.apply(x, *parameters)  # type: ignore[no-untyped-call]
        return projected
    return tuple(each(x) for each in linears)


def _project_together(
    module: Attention, x: Tensor, names: tuple[str, ...], *, value_bias: bool, key_bias: bool
) -> Tensor:
    """The same side by side in one tensor (batch, seq, number of them, heads, size); `value_bias`:
    whether the value's bias gets its gradient here; `key_bias`: whether the key's has one."""
    quantized, linears = _quantized(module, *names), [getattr(module, name) for name in names]
    outputs: Tensor = (
        concatenated(x, linears, tuned=torch.is_grad_enabled())
        if quantized is None
        else quantized(x, is_constant=True)
    )
    offsets = {
        name: None if name == "key" and not key_bias else number * module.value.out_features
        for number, name in enumerate(names)
    }
    if not value_bias:
        offsets.pop("value", None)
    biases = [getattr(module, name).bias for name in offsets]
    outputs = bias_gradients(outputs, biases, list(offsets.values()))
    return outputs.view(*x.shape[:2], len(names), module.num_heads, -1)
