"""torch.compile where it pays: a model in; the same model with its one layer compiled out, or eager
with one message."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from litebert.kernels.compile import guarded
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.model.positions import Packing
from litebert.objective import Tail
from litebert.train.runtime import Runtime

_F = TypeVar("_F", bound=Callable[..., Any])
_SHAPES = 32
"""How many shapes are compiled before torch gives up on the layer."""
_BUDGET = 0.9
"""Fraction of a layer's activations that `recompute` saves for the backward pass. Anything from
0.85 to 0.95 makes torch save the same: outputs of matmuls and attention, none of norms and
activations (docs/decisions/memory.md)."""


def compile_model(
    model: Model,
    wish: Literal["auto", "on", "off"],
    runtime: Runtime,
    say: Callable[[str], None],
    *,
    dynamic: bool = False,
    recompute: bool = False,
) -> bool:
    """Compile the layer: all layers are one layer, so a dozen applications cost one compilation.
    Whether it was done.

    `dynamic`: every batch may have another shape, and one compilation serves all of them. With
    `recompute` norms and activations are recomputed in the backward pass, matmuls never.
    """
    if wish == "off" or (wish == "auto" and runtime.device.type != "cuda"):
        return False
    if model.config.encoder.reversible:
        say("reversible layers run uncompiled, and without CUDA graphs")
        return False
    # Each sequence length and batch of a recipe's stages is a shape of its own; packed rows are one
    # with a free length.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _SHAPES)
    layer = _mark_packed(torch.compile(model.encoder.layer, dynamic=dynamic))
    model.encoder.layer = guarded(
        "layers", _sparing(layer) if recompute else layer, model.encoder.layer, say
    )
    return True


def compile_tail(say: Callable[[str], None]) -> Tail:
    """The heads and their losses, compiled when first used: logits over the vocabulary are large,
    and each pass over them costs."""
    plain = Tail()
    detection = torch.compile(plain.detection, dynamic=False)

    def compiled_head(head: _F) -> _F:
        compiled = torch.compile(head, dynamic=False)

        def call(model: Model, states: Tensor, batch: DeviceBatch, fused: bool = False) -> Any:
            if isinstance(
                batch.mask, Packing
            ):  # the number of masked tokens follows that of tokens
                for name in ("masked", "masked_labels", "draws"):
                    if name in batch.head_inputs:
                        torch._dynamo.mark_dynamic(batch.head_inputs[name], 0)
            return compiled(model, states, batch, fused)

        return cast(_F, call)

    def call_detection(
        model: Model, states: Tensor, replaced: Tensor, real: Tensor
    ) -> dict[str, Tensor]:
        if len(states) == 1:  # packed
            for tensor in (states, replaced, real):
                torch._dynamo.mark_dynamic(tensor, 1)
        return detection(model, states, replaced, real)

    return Tail(
        masked=guarded("heads", compiled_head(plain.masked), plain.masked, say),
        generator=guarded(
            "the generator's heads", compiled_head(plain.generator), plain.generator, say
        ),
        detection=guarded("detection heads", call_detection, plain.detection, say),
    )


def _sparing(layer: _F) -> _F:
    def call(*args: Any) -> Any:
        # Read when the first call compiles. Operators of our own, too, are not to be computed
        # twice.
        with torch._functorch.config.patch(
            activation_memory_budget=_BUDGET, is_non_builtin_to_include=True
        ):
            return layer(*args)

    return cast(_F, call)


def _mark_packed(layer: _F) -> _F:
    def call(
        attention: Any,
        feed_forward: Any,
        states: Any,
        mask: Any,
        needed: Any = None,
        rotate: Any = None,
        *others: Any,
    ) -> Any:
        if isinstance(mask, Packing):
            torch._dynamo.mark_dynamic(states, 1)
            if rotate is not None:
                torch._dynamo.mark_dynamic(rotate.positions, 1)
        return layer(attention, feed_forward, states, mask, needed, rotate, *others)

    return cast(_F, call)
