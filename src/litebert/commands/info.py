"""litebert info: a preset in; exact parameters, FLOPs per token and memory out."""

import json as jsonlib
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from litebert.config import PRESETS, EncoderConfig, HeadConfig, preset
from litebert.errors import ConfigError
from litebert.model.count import (
    TRAINING_BYTES,
    activation_bytes,
    count_encoder,
    count_head,
    flops_per_token,
)

MASKED_FRACTION = 0.15


Preset = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PRESET")]


def info(name: Preset = "", /, *, seq: int = 512, batch: int = 1, json: bool = False) -> None:
    """Print exact parameters, FLOPs per token and memory of one preset, or of all.

    Args:
        name: A preset, such as albert-base-v2; all of them when left out.
        seq: Tokens in a sequence, for FLOPs and activations; at most the preset's positions.
        batch: Sequences in a batch, for activations.
        json: Print one JSON object.
    """
    if seq < 1 or batch < 1:
        raise ConfigError(f"seq and batch are at least 1; got {seq} and {batch}")
    names = [name] if name else list(PRESETS)
    facts = {each: describe(preset(each), seq=seq, batch=batch) for each in names}
    if json:
        print(jsonlib.dumps(facts[name] | {"preset": name} if name else facts))
    elif name:
        print_one(name, facts[name])
    else:
        print_all(facts)


def describe(config: EncoderConfig, *, seq: int, batch: int) -> dict[str, Any]:
    """Everything that `info` prints, as plain numbers."""
    seq = min(seq, config.max_positions)
    parts = count_encoder(config)
    heads = {kind: count_head(config, HeadConfig(kind=kind)) for kind in ("masked", "order")}
    total = sum(parts.values())
    training = total + sum(heads.values())
    return {
        "config": config.to_dict(),
        "parameters": {
            "encoder": total,
            **{f"encoder.{part}": n for part, n in parts.items()},
            **heads,
        },
        "flops_per_token": {
            "seq": seq,
            "forward": flops_per_token(config, seq=seq),
            "pretraining": flops_per_token(
                config, seq=seq, masked_fraction=MASKED_FRACTION, training=True
            ),
        },
        "bytes": {
            "weights_float32": 4 * total,
            "weights_bfloat16": 2 * total,
            "training_state": TRAINING_BYTES * training,
            "batch": batch,
            "activations_float32": activation_bytes(config, batch=batch, seq=seq),
            "activations_bfloat16": activation_bytes(config, batch=batch, seq=seq, width=2),
            "activations_checkpointed": activation_bytes(
                config, batch=batch, seq=seq, checkpoint_every=1
            ),
        },
    }


def print_one(name: str, facts: dict[str, Any]) -> None:
    table = Table(title=name, show_header=False, box=None, title_justify="left", title_style="bold")
    table.add_column(justify="left")
    table.add_column(justify="right")
    for part, number in facts["parameters"].items():
        label = {
            "encoder": "parameters, encoder with pooler",
            "masked": "+ masked-token head",
            "order": "+ order head",
        }
        if number:
            table.add_row(label.get(part, "    " + part.removeprefix("encoder.")), f"{number:,}")
    flops, sizes = facts["flops_per_token"], facts["bytes"]
    table.add_row(f"FLOPs per token at {flops['seq']} tokens, forward", si(flops["forward"]))
    table.add_row("    pretraining step (15 % masked)", si(flops["pretraining"]))
    table.add_row("weights, float32", bytes_of(sizes["weights_float32"]))
    table.add_row("    bfloat16", bytes_of(sizes["weights_bfloat16"]))
    table.add_row(
        "training state (weights, gradients, two moments)", bytes_of(sizes["training_state"])
    )
    table.add_row(
        f"activations, {sizes['batch']} × {flops['seq']} tokens, float32",
        bytes_of(sizes["activations_float32"]),
    )
    table.add_row("    bfloat16", bytes_of(sizes["activations_bfloat16"]))
    table.add_row(
        "    float32, checkpointed every layer", bytes_of(sizes["activations_checkpointed"])
    )
    Console().print(table)


def print_all(facts: dict[str, dict[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in (
        "preset",
        "parameters",
        "+ masked",
        "+ order",
        "FLOPs/token",
        "weights",
        "training",
    ):
        table.add_column(column, justify="left" if column == "preset" else "right", no_wrap=True)
    for name, fact in facts.items():
        counts, sizes = fact["parameters"], fact["bytes"]
        numbers = (f"{counts[key]:,}" for key in ("encoder", "masked", "order"))
        memory = (bytes_of(sizes["weights_float32"]), bytes_of(sizes["training_state"]))
        table.add_row(name, *numbers, si(fact["flops_per_token"]["forward"]), *memory)
    Console().print(table)


def si(number: float) -> str:
    """1.9e8 as 190 M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def bytes_of(number: float) -> str:
    """46734336 as 44.6 MiB."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"
