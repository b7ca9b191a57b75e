"""What there is: `litebert info` (presets), `litebert models` (embedded models) and `litebert
doctor` (this machine)."""

from dataclasses import asdict
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from litebert import __version__
from litebert.commands.flags import EncoderSettings
from litebert.commands.marks import Json
from litebert.commands.tables import open_console, print_facts
from litebert.config import PRESETS, EncoderConfig, HeadConfig, preset
from litebert.doctor import examine
from litebert.errors import ConfigError
from litebert.files import to_json
from litebert.model.count import (
    TRAINING_BYTES,
    activation_bytes,
    count_encoder,
    count_head,
    flops_per_token,
)
from litebert.models.index import EmbeddedModel, embedded_models
from litebert.terminal import write_line

_MASKED_FRACTION = 0.15


def info(
    name: Annotated[str, Positional, arg(metavar="PRESET")] = "",
    /,
    *,
    encoder: EncoderSettings = (),
    seq: int = 512,
    batch: int = 1,
    json: Json = False,
) -> None:
    """Print exact parameters, FLOPs per token and memory of one preset, or of all.

    Args:
        name: A preset, such as albert-base-v2; without one, all of them.
        encoder: Encoder settings that differ from the preset, such as norm=pre adapter_rank=8.
        seq: Tokens in a sequence, for FLOPs and activations; at most the preset's positions.
        batch: Sequences in a batch, for activations.
    """
    if seq < 1 or batch < 1:
        raise ConfigError(f"seq and batch are at least 1; got {seq} and {batch}")
    names = [name] if name else list(PRESETS)
    configs = {
        each: EncoderConfig.from_dict(preset(each).to_dict() | dict(encoder)) for each in names
    }
    facts = {
        each: _describe_preset(config, seq=seq, batch=batch) for each, config in configs.items()
    }
    if json:
        write_line(to_json(facts[name] | {"preset": name} if name else facts))
    elif name:
        settings = (f"{setting}={value}" for setting, value in dict(encoder).items())
        _print_preset(" ".join([name, *settings]), facts[name])
    else:
        _print_presets(facts)


def _describe_preset(config: EncoderConfig, *, seq: int, batch: int) -> dict[str, Any]:
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
            **{f"encoder.{module}": n for module, n in parts.items()},
            **heads,
        },
        "flops_per_token": {
            "seq": seq,
            "forward": flops_per_token(config, seq=seq),
            "pretraining": flops_per_token(
                config, seq=seq, masked_fraction=_MASKED_FRACTION, training=True
            ),
        },
        "bytes": {
            "weights_float32": 4 * total,
            "weights_bfloat16": 2 * total,
            "training_state": TRAINING_BYTES * training,
            "batch": batch,
            "activations_float32": activation_bytes(config, batch=batch, seq=seq),
            "activations_bfloat16": activation_bytes(config, batch=batch, seq=seq, width=2),
            "activations_checkpointed": None
            if config.reversible
            else activation_bytes(config, batch=batch, seq=seq, checkpoint_every=1),
        },
    }


def _print_preset(name: str, facts: dict[str, Any]) -> None:
    names = {
        "encoder": "parameters, encoder with pooler",
        "masked": "+ masked-token head",
        "order": "+ order head",
    }
    flops, sizes = facts["flops_per_token"], facts["bytes"]
    batch = f"{sizes['batch']} × {flops['seq']}"
    rows = [
        ("weights, float32", "weights_float32"),
        ("    bfloat16", "weights_bfloat16"),
        ("training state (weights, gradients, two moments)", "training_state"),
        (f"activations, {batch} tokens, float32", "activations_float32"),
        ("    bfloat16", "activations_bfloat16"),
        ("    float32, checkpointed every layer", "activations_checkpointed"),
    ]
    print_facts(
        name,
        [
            *(
                (names.get(module, "    " + module.removeprefix("encoder.")), f"{number:,}")
                for module, number in facts["parameters"].items()
                if number
            ),
            (f"FLOPs per token at {flops['seq']} tokens, forward", _si(flops["forward"])),
            ("    pretraining step (15 % masked)", _si(flops["pretraining"])),
            *((label, _bytes(sizes[key])) for label, key in rows if sizes[key]),
        ],
    )


def _print_presets(facts: dict[str, dict[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("preset", no_wrap=True)
    for column in ("parameters", "+ masked", "+ order", "FLOPs/token", "weights", "training"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, fact in facts.items():
        counts, sizes = fact["parameters"], fact["bytes"]
        numbers = (f"{counts[key]:,}" for key in ("encoder", "masked", "order"))
        memory = (_bytes(sizes["weights_float32"]), _bytes(sizes["training_state"]))
        table.add_row(name, *numbers, _si(fact["flops_per_token"]["forward"]), *memory)
    Console().print(table)


def _si(number: int | float) -> str:
    """1.9e8 as 190 M."""
    return _scaled(number, {" G": 1e9, " M": 1e6, " k": 1e3, "": 1.0})


def _bytes(number: int | float) -> str:
    """46734336 as 44.6 MiB."""
    return _scaled(number, {" GiB": 2**30, " MiB": 2**20, " KiB": 2**10, " B": 1})


def _scaled(number: int | float, units: dict[str, int | float]) -> str:
    unit = next(unit for unit, size in units.items() if number >= size or size == 1)
    rounded = float(f"{number / units[unit]:.3g}")  # 1020, not 1.02e+03
    return f"{rounded:g}{unit}"


def models(*, json: Json = False) -> None:
    """List the models that come with litebert: name, size, parameters, verbs, license and scores.
    Each has a card, README.md."""
    listed = [_describe_model(model) for model in embedded_models()]
    if json:
        write_line(to_json({"models": listed}, ensure_ascii=False))
        return
    if not listed:
        write_line(
            "no model comes with this litebert; those of your own are named by their folders: "
            "litebert fill --model DIR …"
        )
        return
    console = open_console()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in ("name", "size", "parameters", "can", "license"):
        table.add_column(column, justify="right" if column in ("size", "parameters") else "left")
    for fact in listed:
        sizes = (f"{fact['bytes'] / 1e6:.1f} MB", f"{fact['parameters']:,}")
        table.add_row(fact["name"], *sizes, ", ".join(fact["verbs"]), fact["license"])
    console.print(table)
    for fact in listed:
        console.print(f"\n{fact['name']}: {fact['summary']}", soft_wrap=True)
        if fact["scores"]:
            console.print(f"  scores: {_listed(fact['scores'])}", soft_wrap=True)
        console.print(f"  card: {fact['card']}", soft_wrap=True)


def _listed(scores: list[dict[str, Any]]) -> str:
    """Each score with its task and its metric, by split."""
    by_split: dict[str, list[str]] = {}
    for score in scores:
        text = f"{score['task']} {score['score']} {score['value']:g}"
        by_split.setdefault(score["split"], []).append(text)
    return "; ".join(f"{', '.join(texts)} ({split})" for split, texts in by_split.items())


def _describe_model(model: EmbeddedModel) -> dict[str, Any]:
    card = model.card()
    return {
        "name": model.name,
        "bytes": model.num_bytes,
        "parameters": card.parameters,
        "verbs": list(model.verbs),
        "license": card.license,
        "scores": [asdict(score) for score in card.scores],
        "summary": card.summary,
        "card": str(model.page),
    }


def doctor(*, folder: str = ".", json: Json = False) -> None:
    """Print what this machine can do, and what is missing.

    Args:
        folder: Where runs would be written; its free space is checked.
    """
    findings = examine(folder)
    if json:
        facts = {"litebert": __version__, "findings": [asdict(finding) for finding in findings]}
        write_line(to_json(facts))
        return
    table = Table(
        title=f"litebert {__version__}",
        show_header=False,
        box=None,
        title_justify="left",
        title_style="bold",
    )
    for finding in findings:
        mark = Text("yes", "green") if finding.good else Text("no", "yellow")
        table.add_row(mark, finding.name, finding.value, Text(finding.advice, "dim"))
    Console().print(table)
