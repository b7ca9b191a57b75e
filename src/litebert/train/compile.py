"""torch.compile where it pays: a model in; the same model with its one layer compiled out, or eager with one message."""

from collections.abc import Callable
from typing import Any, Literal

import torch

from litebert.model.model import Model
from litebert.train.runtime import Runtime

SHAPES = 32
"""How many shapes are compiled before torch gives up on the layer."""


def compile_model(model: Model, wish: Literal["auto", "on", "off"], runtime: Runtime, say: Callable[[str], None]) -> bool:
    """Compile the layer: all layers are one layer, so a dozen applications cost one compilation. Whether it was done."""
    if wish == "off" or (wish == "auto" and runtime.device.type != "cuda"):
        return False
    eager = model.encoder.layer
    compiled = torch.compile(eager, dynamic=False)
    # Each sequence length and batch of a recipe's stages is a shape of its own.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, SHAPES)

    def layer(*args: Any) -> Any:
        if not torch.is_grad_enabled():
            return eager(*args)  # an evaluation is shorter than the compilation it would ask for
        try:
            return compiled(*args)
        except torch._dynamo.exc.TorchDynamoException as error:
            model.encoder.layer = eager
            say(f"torch.compile failed ({type(error).__name__}), so layers run uncompiled: {str(error).splitlines()[0]}")
            return eager(*args)

    model.encoder.layer = layer  # type: ignore[assignment]
    return True
