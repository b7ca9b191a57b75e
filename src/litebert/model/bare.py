"""A model without weights: for its names and shapes, and to be given weights from elsewhere. A
config in, a Model out."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from litebert.config import ModelConfig
from litebert.model.model import Model


def bare_model(config: ModelConfig) -> Model:
    """The model on torch's meta device, where tensors have shapes and nothing else."""
    with torch.device("meta"), _Unfilled():
        return Model(config)


class _Unfilled(TorchFunctionMode):
    """Leaves out normal numbers: on the meta device there is nothing to fill, and finding that out
    makes torch import its compiler, which takes longer than all the rest of loading a model."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is nn.init.normal_:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)
