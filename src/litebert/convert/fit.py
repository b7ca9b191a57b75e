"""Foreign weights into our names: stored weights, a config and a table in; tensors under our names
out, or a reason.
 Nothing is dropped and nothing invented: a leftover, a gap, another shape or a type that would lose
digits is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from litebert.config import ModelConfig
from litebert.convert.names import Foreign, num_owners
from litebert.convert.stored import Stored
from litebert.errors import ConversionError
from litebert.model.model import Model

EXACT_DTYPES = ("F32", "F16", "BF16")
"""Types that float32 holds without loss."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A foreign model under our names."""

    config: ModelConfig
    weights: dict[str, Tensor]
    notes: tuple[str, ...] = ()
    """What a user should know: what was left out, assumed or changed."""

    def model(self) -> Model:
        """The model itself, built around these tensors without a copy."""
        with torch.device("meta"):
            model = Model(self.config)
        model.load_state_dict(self.weights, assign=True)
        return model.eval()


def check_size(config: ModelConfig, stored: Mapping[str, object]) -> None:
    """Refuse a config that asks for far more layers than there are weights, before anything is made
    for each of them."""
    owners = num_owners(config.encoder, "attention") + num_owners(config.encoder, "ffn")
    if owners > len(stored):
        raise ConversionError(
            f"the config asks for {owners // 2} layers of weights, the file has {len(stored)} "
            "weights in all"
        )


def fit(
    config: ModelConfig, names: Mapping[str, Foreign], stored: Mapping[str, Stored]
) -> dict[str, Tensor]:
    """The stored weights under our names in float32, each looked at before any is read."""
    _check_names((foreign.name for foreign in names.values()), stored)
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in Model(config).state_dict().items()}
    assert shapes.keys() == names.keys(), "the table and the model disagree"
    for ours, foreign in names.items():
        expected = shapes[ours][::-1] if foreign.transposed else shapes[ours]
        found = stored[foreign.name]
        if found.shape != expected:
            raise ConversionError(
                f"{foreign.name} has shape {list(found.shape)}, the config asks for "
                f"{list(expected)}"
            )
        if found.dtype not in EXACT_DTYPES:
            raise ConversionError(
                f"{foreign.name} is stored as {found.dtype}; weights are read from "
                f"{', '.join(EXACT_DTYPES)}, "
                "which float32 holds exactly: cast it first"
            )
    return {ours: _tensor(stored[foreign.name].load(), foreign) for ours, foreign in names.items()}


def _tensor(tensor: Tensor, foreign: Foreign) -> Tensor:
    return (tensor.T if foreign.transposed else tensor).to(torch.float32).contiguous()


def _check_names(expected: Iterable[str], found: Mapping[str, object]) -> None:
    wanted = set(expected)
    unknown, missing = sorted(found.keys() - wanted), sorted(wanted - found.keys())
    if missing:
        hint = f"; {unknown[0]!r} is there and has no name here" if unknown else ""
        raise ConversionError(
            f"{len(missing)} weights are missing, the first is {missing[0]!r}{hint}"
        )
    if unknown:
        raise ConversionError(
            f"{len(unknown)} weights have no name here, the first is {unknown[0]!r}; none may be "
            "dropped"
        )
