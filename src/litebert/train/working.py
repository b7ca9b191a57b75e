"""The bf16 working copy of the fp32 master weights. A master in; a model in the run's dtype out.

In bfloat16 matmuls are fast but a weight cannot take small steps, so optimizer, clipping and
snapshots see the master alone: its rounded copy makes the gradients, which are summed in float32.
The gate gives the copy its layer; with fp8 it also rounds the copy's weights to 8 bits, which
happens here once a step.
"""

import copy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from litebert.kernels.gate import Gate
from litebert.model.model import Model

M = TypeVar("M", bound=nn.Module)


class WorkingCopy(Generic[M]):
    """`model` computes; in float32 it is the master itself and nothing is copied."""

    def __init__(self, master: M, dtype: torch.dtype, *, gate: Gate | None = None) -> None:
        self.is_master = dtype == torch.float32
        self.model: M = master if self.is_master else copy.deepcopy(master).to(dtype)
        self._masters = _trained(master)
        self._copies = _trained(self.model)
        self._quantized = []
        if gate is not None:
            assert not (gate.quantizes and self.is_master), "fp8 needs a rounded copy"
            assert isinstance(self.model, Model)
            self._quantized = gate.apply(self.model)
        self._held: dict[Tensor, Tensor] | None = None

    def hold_gradients(self) -> None:
        """From now on the master's gradients are added up in the same memory in every step: a
        recorded update reads it."""
        self._held = {}

    @torch.no_grad()
    def collect(self) -> None:
        """After a backward pass: move the gradients to the master."""
        if self.is_master:
            return
        new, rounded_new, old, rounded_old = [], [], [], []
        for master, rounded in zip(self._masters, self._copies, strict=True):
            if rounded.grad is not None and master.grad is None:
                master.grad = self._room(master)
                new.append(master.grad)
                rounded_new.append(rounded.grad)
            elif rounded.grad is not None and master.grad is not None:
                old.append(master.grad)
                rounded_old.append(rounded.grad)
        if new:
            torch._foreach_copy_(new, rounded_new)
        if old:
            torch._foreach_add_(old, rounded_old)
        self.clear()

    @torch.no_grad()
    def refresh(self) -> None:
        """After the master changed: round its weights again."""
        if not self.is_master:
            torch._foreach_copy_(self._copies, self._masters)
        for linear in self._quantized:
            linear.refresh()

    def clear(self) -> None:
        """Forget gradients of a pass that failed half-way."""
        for parameter in self._copies:
            parameter.grad = None

    def _room(self, master: Tensor) -> Tensor:
        """Where the gradient of a parameter goes."""
        if self._held is None:
            return torch.empty_like(master)
        if master not in self._held:
            self._held[master] = torch.empty_like(master)
        return self._held[master]


def _trained(model: nn.Module) -> list[Tensor]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
