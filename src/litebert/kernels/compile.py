"""torch.compile for a model's layer, falling back to the eager layer where compiling fails.
All layers are one layer, so a model of any depth costs one compilation.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from litebert.model.model import Model

F = TypeVar("F", bound=Callable[..., Any])


def compile_for_inference(model: Model, report: Callable[[str], None]) -> None:
    """Compile the layer once for batches of any shape, used only without gradients."""
    if model.config.encoder.reversible:
        report("reversible layers run uncompiled")
        return
    layer = torch.compile(model.encoder.layer, dynamic=True)
    model.encoder.layer = guarded(
        "layers", layer, model.encoder.layer, report, is_wanted=lambda: not torch.is_grad_enabled()
    )


def guarded(
    what: str,
    compiled: F,
    eager: F,
    report: Callable[[str], None],
    *,
    is_wanted: Callable[[], bool] = torch.is_grad_enabled,
) -> F:
    """The compiled function where it is wanted (by default, where gradients are); the eager one
    elsewhere, and for good once compiling has failed."""
    failed = False

    def call(*args: Any) -> Any:
        nonlocal failed
        if failed or not is_wanted():
            return eager(*args)  # an evaluation is shorter than the compilation it would ask for
        try:
            return compiled(*args)
        except torch._dynamo.exc.TorchDynamoException as error:
            failed = True
            report(
                f"torch.compile failed ({type(error).__name__}), so {what} run uncompiled: "
                f"{str(error).splitlines()[0]}"
            )
            return eager(*args)

    return cast(F, call)
