"""A batch on the device that computes: a HostBatch in; tensors that the encoder, the heads and the
losses read, out. All of them travel in one copy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from litebert.config import HeadKind
from litebert.model.encoder import Encoder
from litebert.model.positions import Needed, Packing
from litebert.packing import HostBatch


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceBatch:
    """Padded rows, or packed rows as one row of the batch."""

    token_ids: Int[Tensor, "batch seq"]
    segment_ids: Int[Tensor, "batch seq"] | None = None
    mask: Bool[Tensor, "batch seq"] | Packing | None = None
    """True for a real token; where rows are packed, their bounds; None where no row is padded."""
    positions: Int[Tensor, "batch seq"] | None = None
    """The place of each token in its own row; None where rows are not packed."""
    needed: Needed | None = None
    """The tokens whose last states are read; None for all."""
    head: HeadKind | None = None
    """The head that reads the batch; None in pretraining, which has two."""
    head_inputs: Mapping[str, Tensor] = field(default_factory=dict)
    """What heads and losses read, by name.

    Pretraining: `masked` and `first` are where the masked tokens and each row's [CLS] stand among
    the needed ones; `masked_labels` and `order_labels`; and for replaced tokens `draws`, two
    uniform numbers for each masked token.

    Tasks: `targets` is a label (int64), or 0 and 1 for each label, or a number (float32) for each
    unit, of spans the first and last column; `is_real` is 0 for padding units. choose: `options`,
    the row of each option, -1 where a question has fewer. tag: `words`, where each word's first
    token stands. span: `allowed`, True where an answer may start or end; `columns`, the token in
    each column of each row, where rows are packed.
    """

    @classmethod
    def of(cls, host: HostBatch, device: torch.device | str = "cpu") -> "DeviceBatch":
        if torch.device(device).type == "cpu":
            tensors = {name: torch.from_numpy(array) for name, array in host.arrays.items()}
            return cls._from(host, tensors)
        return cls.within(host, pinned(host).to(device, non_blocking=True))

    @classmethod
    def within(cls, host: HostBatch, flat: UInt8[Tensor, " bytes"]) -> "DeviceBatch":
        """The batch whose bytes, as `pinned` lays them out, are in `flat`."""
        return cls._from(
            host,
            {
                name: flat[host.slices[name]]
                .view(torch.from_numpy(array[:0]).dtype)
                .view(array.shape)
                for name, array in host.arrays.items()
            },
        )

    @classmethod
    def _from(cls, host: HostBatch, tensors: dict[str, Tensor]) -> "DeviceBatch":
        bounds = tensors.pop("bounds", None)
        mask = tensors.pop("mask", None)
        needed, needed_bounds = tensors.pop("needed", None), tensors.pop("needed_bounds", None)
        return cls(
            token_ids=tensors.pop("token_ids"),
            segment_ids=tensors.pop("segment_ids", None),
            mask=mask if bounds is None else Packing(bounds=bounds, longest=host.longest),
            positions=tensors.pop("positions", None),
            needed=None
            if needed is None
            else Needed(places=needed, bounds=needed_bounds, longest=host.most_needed),
            head=host.head,
            head_inputs=tensors,
        )

    def states(
        self, encoder: Encoder, *, depth: int | None = None
    ) -> Float[Tensor, "batch seq hidden"]:
        """The last states of all tokens, or of the needed ones; `depth` stops after that many
        layers."""
        states: Tensor = encoder(**self._inputs(), depth=depth, needed=self.needed)
        return states

    def exit_states(self, encoder: Encoder) -> list[Float[Tensor, "batch needed hidden"]]:
        """The states of the needed tokens after every layer."""
        assert self.needed is not None
        return encoder.exit_states(**self._inputs(), needed=self.needed)

    def _inputs(self) -> dict[str, Any]:
        return {
            "token_ids": self.token_ids,
            "segment_ids": self.segment_ids,
            "mask": self.mask,
            "positions": self.positions,
        }


def pinned(host: HostBatch) -> UInt8[Tensor, " bytes"]:
    """All arrays in one buffer of pinned memory, from which a copy to a GPU need not be waited
    for."""
    return torch.from_numpy(host.flat()).pin_memory()
