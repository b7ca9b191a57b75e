"""Stored weights: a safetensors file, and what config.json says of it, in; the weights that a
config asks for out.
 No more of them and no fewer. Types and shapes are compared before anything is allocated, whatever
the file says.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from litebert.config import EncoderConfig, ModelConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.model.count import count_encoder, count_head
from litebert.model.model import Model, bare_model
from litebert.storage import difference, int8
from litebert.storage.difference import Extent
from litebert.storage.int8 import Shape

MAX_GROUP_SIZE = 2**20
MAX_EXTENT = 2**20
FREE = (
    "embedding_dropout",
    "attention_dropout",
    "attention_output_dropout",
    "ffn_dropout",
    "pooler",
)
"""Settings in which an encoder may differ from its base."""
Expected = dict[str, tuple[str | None, Shape]]
"""For each name of a file its type where that is not free, and its shape."""


@dataclass(frozen=True, kw_only=True)
class Based:
    """What is said of weights that are stored as a difference."""

    base: str
    """Name of the base's folder."""
    sha256: str
    """What tells the base from any other checkpoint."""
    extent: Extent

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "difference", "base": self.base, "sha256": self.sha256, **vars(self.extent)}


def read_mark(said: Any) -> int | Based:
    """What config.json says of weights that are not stored as they are: how many share a scale, or
    what they are based on."""
    kind = said.get("kind") if isinstance(said, dict) else None
    if kind == "difference":
        return _based({name: value for name, value in said.items() if name != "kind"})
    size: Any = (
        said["group_size"] if kind == "int8" and said.keys() == {"kind", "group_size"} else None
    )
    if not _is_whole(size, 1, MAX_GROUP_SIZE):
        raise ConfigError(
            f"weights is of kind int8, with a group_size from 1 to {MAX_GROUP_SIZE}; got {said!r}; "
            "update litebert"
        )
    return int(size)


def _based(said: dict[str, Any]) -> Based:
    texts = {"base": r"(?!\.\.?$)[^/\\\0]+", "sha256": "[0-9a-f]{64}"}
    least = {"rank": 1, "token_rank": 0, "group_size": 1}
    known = said.keys() == texts.keys() | least.keys()
    if (
        not known
        or not all(
            isinstance(said[name], str) and re.fullmatch(form, said[name])
            for name, form in texts.items()
        )
        or not all(_is_whole(said[name], low, MAX_EXTENT) for name, low in least.items())
    ):
        raise ConfigError(
            "weights of kind difference have a base (the name of a folder), its sha256, and rank, "
            "token_rank and group_size "
            f"up to {MAX_EXTENT}; got {said!r}; update litebert"
        )
    return Based(
        **{name: said[name] for name in texts},
        extent=Extent(**{name: said[name] for name in least}),
    )


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def read_weights(
    path: Path, config: ModelConfig, group_size: int | None = None
) -> dict[str, Tensor]:
    """The weights of a file; `group_size` is of weights in 8 bits, which come back in float32."""
    stored = read_tensors(path, lambda found: expected_shapes(config, found, group_size))
    return stored if group_size is None else int8.unpack(stored, group_size)


def read_difference(
    path: Path, config: ModelConfig, extent: Extent, base: Model
) -> dict[str, Tensor]:
    """The weights that a file and its base make together, in float32."""
    check_alike(config.encoder, base.config.encoder)
    before = base.state_dict()
    shapes = shapes_of(bare_model(config))
    kinds = difference.stored_as(shapes, shapes_of(base), extent)
    stored = read_tensors(path, lambda found: expected_parts(kinds, found.keys(), before.keys()))
    return difference.unpack(stored, before, shapes, extent)


def shapes_of(model: Model) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def check_alike(encoder: EncoderConfig, base: EncoderConfig) -> None:
    """Refuse a base of another shape."""
    alike = replace(encoder, **{name: getattr(base, name) for name in FREE})
    other = [name for name, value in base.to_dict().items() if alike.to_dict()[name] != value]
    if other:
        name = other[0]
        raise CheckpointError(
            f"the encoder has {name} {getattr(encoder, name)!r}, its base has "
            f"{getattr(base, name)!r}; "
            "a difference needs the model that was fine-tuned"
        )


def read_tensors(path: Path, expect: Callable[[dict[str, Shape]], Expected]) -> dict[str, Tensor]:
    """All of a file; `expect` is given the shapes that it has, and says which it should have, or
    what is wrong."""
    if not path.exists():
        raise CheckpointError(f"{path.parent} has no {path.name}; the checkpoint is not complete")
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: tuple(part.get_shape()) for name, part in slices.items()}
            for name, (kind, shape) in expect(found).items():
                if found[name] != shape:
                    raise CheckpointError(
                        f"{path}: {name} has shape {found[name]}, config.json asks for {shape}"
                    )
                if kind and (there := slices[name].get_dtype()) != kind:
                    raise CheckpointError(
                        f"{path}: {name} is stored as {there}, config.json asks for {kind}"
                    )
            return {name: file.get_tensor(name) for name in found}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} cannot be read, it is truncated or damaged: {error}"
        ) from error


def expected_shapes(
    config: ModelConfig, found: dict[str, Shape], group_size: int | None
) -> Expected:
    """What a file for this config has. The counts are compared first, so that no config makes us
    build much."""
    encoder = config.encoder
    asked = sum(count_encoder(encoder).values()) + sum(
        count_head(encoder, head) for head in config.heads
    )
    scales = int8.SCALES if group_size else ()
    there = sum(math.prod(shape) for name, shape in found.items() if not name.endswith(scales))
    if asked != there:
        raise CheckpointError(
            f"config.json asks for {asked:,} parameters, model.safetensors has {there:,}; they do "
            "not belong together"
        )
    shapes = shapes_of(bare_model(config))
    expected: Expected = (
        {**int8.stored_as(shapes, group_size)}
        if group_size
        else {name: (None, shapes[name]) for name in shapes}
    )
    _check_names(found.keys(), expected.keys())
    return expected


def expected_parts(kinds: Mapping[str, difference.Kinds], found: Any, before: Any) -> Expected:
    """What a file has that says a difference: of each weight all parts, or none where the base has
    it."""
    there = {
        name: parts for name, parts in kinds.items() if name not in before or parts.keys() & found
    }
    expected: Expected = {part: kind for parts in there.values() for part, kind in parts.items()}
    _check_names(found, expected.keys())
    return expected


def _check_names(found: Any, expected: Any) -> None:
    unknown, missing = sorted(found - expected), sorted(expected - found)
    if unknown:
        raise CheckpointError(
            f"{len(unknown)} weights have no name here, the first is {unknown[0]!r}"
        )
    if missing:
        raise CheckpointError(f"{len(missing)} weights are missing, the first is {missing[0]!r}")
