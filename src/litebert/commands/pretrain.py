"""litebert pretrain: a folder of shards in; a run folder with metrics, snapshots and a checkpoint
out."""

import json as jsonlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from litebert.config import PRESETS
from litebert.errors import ConfigError, DivergedError, InterruptedRunError
from litebert.recipes import NAMED, PretrainRecipe, Stages, named

if TYPE_CHECKING:
    from litebert.train.log import Sink

Metavar = tyro.conf.arg


def pretrain(
    *,
    data: str,
    out: str,
    recipe: str = "affordable",
    preset: str | None = None,
    encoder: Annotated[tuple[str, ...], Metavar(metavar="SETTING=VALUE…")] = (),
    steps: int | None = None,
    tokens: int | None = None,
    batch_size: str | None = None,
    sequence_length: str | None = None,
    depth: str | None = None,
    optimizer: Literal["adamw", "lamb", "muon"] | None = None,
    rate: float | None = None,
    warmup: float | None = None,
    decay: str | None = None,
    order: Literal["sop", "nsp", "none"] | None = None,
    seed: int | None = None,
    init: str | None = None,
    save_every: int | None = None,
    evaluate_every: int | None = None,
    heldout_fraction: float | None = None,
    microbatch_tokens: int | None = None,
    checkpoint_every: int | None = None,
    recompute: bool | None = None,
    dtype: Literal["auto", "float32", "bfloat16", "fp8"] | None = None,
    compile: Literal["auto", "on", "off"] | None = None,
    device: str = "auto",
    workers: int = 1,
    tensorboard: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Pretrain an encoder on shards made by `litebert data build`. The same command again goes on
    where it stopped.

    Flags left out are as the recipe has them. Stages change a number during the run:
    "0:128,0.9:512" is 128, and 512 for the last tenth; starts are fractions of the run or steps.

    Args:
        data: Folder of shards.
        out: Folder of the run.
        recipe: A named recipe, or a JSON file with one (every run writes its own as recipe.json).
        preset: Shape of the encoder, such as albert-base-v2; see litebert info.
        encoder: Settings in which the encoder differs from its preset, such as norm=post
            num_layers=6.
        steps: Optimizer updates; instead of tokens.
        tokens: Tokens to read in all; instead of steps.
        batch_size: Sequences in a step, over all ranks; a number or stages.
        sequence_length: Tokens in a sequence; a number or stages.
        depth: Layers applied; a number or stages that end at the encoder's own.
        optimizer: Which optimizer changes the weights.
        rate: Peak of the learning rate, whatever the batch; the recipe paper scales its own by the
            root of the batch.
        warmup: Linear warm-up: a number of steps from 1 up, or below 1 a fraction of the run.
        decay: Course of the rate: reference, polynomial, linear, cosine, constant or stable.
        order: Second objective: swapped segments, segments of another document, or none.
        seed: Seed of weights, order, cuts and masks.
        init: Checkpoint, run or embedded model that weights, and the encoder's shape unless given,
            start from.
        save_every: Steps between snapshots.
        evaluate_every: Steps between evaluations on held-out text.
        heldout_fraction: Part of the documents kept for evaluation; 0 for none.
        microbatch_tokens: Tokens in one forward and backward on one device; less needs less memory.
        checkpoint_every: Gradient checkpointing: keep the states of every n-th layer only; 0 keeps
            all.
        recompute: Compute norms and activations of compiled layers again on the way back: less
            memory, for a little time.
        dtype: Arithmetic of the layers; fp8 is bfloat16 with the large products in 8 bits, for wide
            models on a recent GPU.
        compile: Whether torch.compile is used; auto where it pays.
        device: cpu, cuda, cuda:1 …, or auto.
        workers: Processes that make batches ahead; 0 makes them in this one.
        tensorboard: Write TensorBoard events into the run folder as well.
        dry_run: Do a few real steps on the largest batch and print memory, speed, time and disk;
            write nothing.
        json: Print one JSON object at the end.
    """
    chosen = load_recipe(recipe)
    if workers < 0:
        raise ConfigError(f"workers is a number of processes from 0; got {workers}")
    changes: dict[str, Any] = {
        name: value
        for name, value in {
            "order": order,
            "seed": seed,
            "save_every": save_every,
            "evaluate_every": evaluate_every,
            "heldout_fraction": heldout_fraction,
            "preset": preset,
            "microbatch_tokens": microbatch_tokens,
            "checkpoint_every": checkpoint_every,
            "recompute": recompute,
            "dtype": dtype,
            "compile": compile,
        }.items()
        if value is not None
    }
    stages = {"batch_size": batch_size, "sequence_length": sequence_length, "depth": depth}
    changes |= {name: Stages.parse(text) for name, text in stages.items() if text is not None}
    if steps is not None or tokens is not None:
        changes |= {"steps": steps, "tokens": tokens}
    overrides, differing = dict(chosen.overrides), dict(map(setting, encoder))
    if "vocab_size" in differing:
        raise ConfigError("the vocabulary is that of the data's tokenizer; leave vocab_size out")
    if init is not None:
        from litebert.loading import find_checkpoint

        init = str(find_checkpoint(init))
    if init is not None and preset is None:
        changes["preset"], overrides = shape_of(init)
    elif preset is not None:
        overrides = {name: value for name, value in overrides.items() if name == "norm"}
    changes["overrides"] = tuple((overrides | differing).items())
    if rate is not None:
        changes["rate_batch_size"] = None
    spec: dict[str, Any] = {"name": optimizer, "rate": rate, "decay": decay}
    if warmup is not None:
        spec["warmup"] = int(warmup) if warmup >= 1 else warmup
    changes["optimizer"] = replace(
        chosen.optimizer, **{name: value for name, value in spec.items() if value is not None}
    )
    run(
        replace(chosen, **changes),
        data,
        out,
        init,
        device,
        workers,
        tensorboard=tensorboard,
        dry_run=dry_run,
        json=json,
    )


def run(
    recipe: PretrainRecipe,
    data: str,
    out: str,
    init: str | None,
    device: str,
    workers: int,
    *,
    tensorboard: bool,
    dry_run: bool,
    json: bool,
) -> None:
    # torch only now: wrong flags are answered at once
    from litebert.train.pretrain.dry_run import rehearse, said
    from litebert.train.pretrain.run import Pretraining
    from litebert.train.runtime import Runtime

    runtime = Runtime.start(device=device, dtype=recipe.dtype)
    try:
        training = Pretraining(recipe, data, runtime, init=init, workers=workers)
        result = (
            rehearse(training, out)
            if dry_run
            else training.train(out, sinks=_sinks(out, tensorboard and runtime.is_main))
        )
    except (InterruptedRunError, DivergedError):
        # every rank is here; after any other error the others may be waiting for this one
        runtime.close()
        raise
    runtime.close()
    if not runtime.is_main:
        return
    if json:
        print(jsonlib.dumps(result))
    elif dry_run:
        for name, value in said(result).items():
            print(f"{name:<16}{value}")
    else:
        print(
            f"finished; the checkpoint is {Path(out) / 'final'}, the curves: litebert report {out}",
            file=sys.stderr,
        )


def _sinks(out: str, tensorboard: bool) -> "tuple[Sink, ...]":
    if not tensorboard:
        return ()
    from litebert.train.tensorboard import TensorBoardSink

    return (TensorBoardSink(Path(out) / "tensorboard"),)


def shape_of(folder: str) -> tuple[str, dict[str, int | float | bool | str]]:
    """The encoder of a checkpoint as a preset and what differs from it; its vocabulary gives way to
    the data's."""
    from litebert.storage.checkpoint import read_config

    there = read_config(Path(folder)).encoder.to_dict()
    name = "albert-base-v2"
    usual = PRESETS[name].to_dict()
    return name, {
        key: value for key, value in there.items() if key != "vocab_size" and value != usual[key]
    }


def load_recipe(name: str) -> PretrainRecipe:
    """A named recipe, or one from a file: a recipe alone, or what a run wrote."""
    path = Path(name)
    if name in NAMED or not path.is_file():
        return named(name)
    try:
        text = path.read_text(encoding="utf-8")
        data = jsonlib.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"{path} is not JSON: {error}; a recipe file is what a run writes as recipe.json"
        ) from error
    inner = data.get("recipe") if isinstance(data, dict) else None
    return (
        PretrainRecipe.from_dict(inner)
        if isinstance(inner, dict)
        else PretrainRecipe.from_json(text)
    )


def setting(text: str) -> tuple[str, int | float | bool | str]:
    """`norm=pre` as a pair; numbers, true and false become what they say."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(
            f"an encoder setting is written name=value, such as norm=pre; got {text!r}"
        )
    try:
        parsed = jsonlib.loads(value)
    except ValueError:
        parsed = value
    return name, parsed if isinstance(parsed, int | float | bool | str) else value
