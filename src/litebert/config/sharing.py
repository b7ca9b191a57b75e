"""Who owns which parameters: an encoder's settings in; for each application of a layer the owners
of its attention and its feed-forward out (ALBERT §3.1, Takase & Kiyono 2021)."""

from typing import TYPE_CHECKING

from litebert.errors import ConfigError

if TYPE_CHECKING:
    from litebert.config.encoder import EncoderConfig

# Which sublayers have owners in common.
SHARED: dict[str, tuple[str, ...]] = {
    "none": (),
    "attention": ("attention",),
    "ffn": ("ffn",),
    "all": ("attention", "ffn"),
}


def plan(config: "EncoderConfig") -> list[tuple[int, int]]:
    """The owners of attention and feed-forward parameters for each application, in order."""
    applications = [
        (i, j) for i in range(config.num_layers) for j in range(config.layers_per_group)
    ]
    attention, ffn = (_owners(config, applications, name) for name in ("attention", "ffn"))
    return list(zip(attention, ffn, strict=True))


def _owners(
    config: "EncoderConfig", applications: list[tuple[int, int]], sublayer: str
) -> list[int]:
    if sublayer not in SHARED[config.share]:
        return list(range(len(applications)))
    last = config.num_layers - 1 if config.cycle == "reversed" else None
    inner = config.layers_per_group
    owners = [
        config.group(i) * inner + (inner - 1 - j if i == last else j) for i, j in applications
    ]
    return _with_own_ends(owners, config.unshared_ends) if config.unshared_ends else owners


def _with_own_ends(owners: list[int], ends: int) -> list[int]:
    """The first and last `ends` applications own their parameters; owners are numbered anew, in
    order of their first application."""
    labels = [owner if ends <= k < len(owners) - ends else -1 - k for k, owner in enumerate(owners)]
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [numbers[label] for label in labels]


def check(config: "EncoderConfig") -> None:
    """Refuse settings of sharing that contradict each other."""
    applications = config.num_layers * config.layers_per_group
    if config.share == "none" and (config.cycle != "forward" or config.unshared_ends):
        name = "unshared_ends" if config.unshared_ends else "cycle"
        raise ConfigError(
            f"{name} is about shared layers, and share is none; got {name} {getattr(config, name)}"
        )
    if config.cycle == "reversed" and (config.layers_per_group == 1 or config.num_groups > 1):
        raise ConfigError(
            "cycle = reversed needs several layers in one group: layers_per_group of at "
            f"least 2 and num_groups 1; got {config.layers_per_group} and {config.num_groups}"
        )
    if config.cycle == "reversed" and config.num_layers == 1:
        raise ConfigError(
            "cycle = reversed needs a group that is applied at least twice; num_layers is 1"
        )
    if config.unshared_ends and 2 * config.unshared_ends > applications - 2:
        raise ConfigError(
            f"between unshared ends at least 2 layers share; got {config.unshared_ends} at each "
            f"end of {applications}"
        )
