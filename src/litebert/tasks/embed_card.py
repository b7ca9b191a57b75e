"""The card of a model tuned for embeddings: how its vectors are made. It is stored as task.json
beside the weights, where other fine-tuned models have a TaskCard, and read strictly."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args

from litebert.checks import check_choice, check_known, check_type, shorten
from litebert.config import ModelConfig, Pooling
from litebert.errors import ConfigError

NAME = "embed"


@dataclass(frozen=True, kw_only=True)
class EmbedCard:
    """What `embed` does unless the user says otherwise."""

    pooling: Pooling = "mean"
    normalize: bool = True
    dimensions: tuple[int, ...] = ()
    """Sizes of vectors, beside the full one, that were trained (Matryoshka)."""

    def __post_init__(self) -> None:
        check_choice(self, "pooling", get_args(Pooling))
        check_type(self, "normalize", bool, "true or false")
        if any(type(size) is not int or size < 1 for size in self.dimensions):
            raise ConfigError(
                f"dimensions are sizes of vectors from 1; got {shorten(self.dimensions)}"
            )

    def check_fits(self, config: ModelConfig) -> None:
        """Refuse sizes that the model's vectors do not have."""
        size = config.encoder.hidden_size
        if any(each > size for each in self.dimensions):
            raise ConfigError(
                f"vectors of this model have {size} numbers, the card names the sizes "
                f"{', '.join(map(str, self.dimensions))}; they do not belong together"
            )

    def check_dimensions(self, dimensions: int, size: int) -> None:
        """Refuse a size that was not trained."""
        if dimensions != size and dimensions not in self.dimensions:
            trained = ", ".join(map(str, sorted({*self.dimensions, size})))
            raise ConfigError(
                f"this model was not trained for vectors of {dimensions}; it has: {trained}; train "
                "others with litebert finetune embed --matryoshka SIZE…"
            )

    def to_dict(self) -> dict[str, Any]:
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"task": {"name": NAME}} | own | {"dimensions": list(self.dimensions)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "EmbedCard":
        settings = {name: value for name, value in data.items() if name != "task"}
        for name in settings:
            check_known("EmbedCard setting", name, [each.name for each in fields(cls)])
        dimensions = settings.get("dimensions", ())
        if not isinstance(dimensions, list | tuple):
            raise ConfigError(f"dimensions is a list of sizes; got {shorten(dimensions)}")
        return cls(**settings | {"dimensions": tuple(dimensions)})


def is_embed_card(task: Mapping[str, Any] | None) -> bool:
    """Whether a task.json is of a model tuned for embeddings."""
    return bool(task) and isinstance(task, Mapping) and task.get("task") == {"name": NAME}
