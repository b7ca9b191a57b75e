"""Put a trained model into the package: int8 weights, its card, and its line in the index.
Prints sizes as JSON.

    python -m tools.embed_model RUN --name base --facts facts.json [--first] \\
        [--into src/litebert/models]
    python -m tools.embed_model RUN --name sentiment --facts facts.json --based-on base \\
        --labels negative positive

RUN is the folder of a run or of a checkpoint, or the embedded folder itself, to make its card
anew: its weights stay as they are. With --based-on only the difference to an embedded model is
stored, which a fine-tuned one needs little room for; `lost` is then what a weight's change misses,
in parts of its own length. The facts are a JSON object of what only a person knows,

    {"summary": "…", "license": "…", "limits": ["…"], "failures": ["…"],
     "recipe": {"name": "value"},
     "data": [{"name": "…", "license": "…", "note": "…"}],
     "scores": [{"task": "…", "score": "…", "value": 0.9, "split": "dev", "note": "…"}]}

and the rest is read off the model and its run. A model that exists under this name is replaced,
and keeps its place in the index; a new one comes last, or with --first becomes the default for all
that it can do.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError, LitebertError
from litebert.files import write_folder
from litebert.infer.predictor import Predictor
from litebert.infer.torch_engine import TorchEngine
from litebert.loading import find_checkpoint, load_checkpoint
from litebert.models.card import AUTHOR_FACTS, ModelCard
from litebert.models.index import (
    CARD,
    INDEX,
    PAGE,
    ROOT,
    EmbeddedModel,
    embedded_models,
    index_text,
)
from litebert.storage.checkpoint import (
    CONFIG,
    TASK,
    WEIGHTS,
    Checkpoint,
    Storage,
    is_difference,
)
from litebert.storage.difference import Difference
from litebert.tasks.task import TaskCard

MOST_BYTES = 28_000_000
"""Of all models together: a wheel stays below 30 MB."""
MOST_DIFFERENCE = 1_000_000
"""Of a model that is stored as a difference."""
RECORDS = {"recipe": "recipe.json", "environment": "environment.json", "status": "status.json"}
"""What a run writes down of itself."""
NOT_TOLD = ("pid", "platform")
"""Of the machine, not of the model."""


def main() -> None:
    try:
        print(json.dumps(embed(parse()), indent=2))
    except LitebertError as error:
        print(f"embed_model: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def parse(args: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of a run or of a checkpoint")
    parser.add_argument(
        "--name",
        required=True,
        help="what the model is to be called: small letters, digits and hyphens",
    )
    parser.add_argument(
        "--facts",
        type=Path,
        help="JSON of what a person knows; without it, those of the card beside the model",
    )
    parser.add_argument("--into", type=Path, default=ROOT, help="folder of the index")
    parser.add_argument(
        "--first", action="store_true", help="make it the default for all that it can do"
    )
    parser.add_argument(
        "--based-on", metavar="NAME", help="store the difference to this embedded model alone"
    )
    parser.add_argument(
        "--rank",
        type=int,
        default=32,
        help="of --based-on: directions kept of each matrix's change",
    )
    parser.add_argument(
        "--token-rank",
        type=int,
        default=4,
        help="of --based-on: and of the token embedding's; 0 for none",
    )
    parser.add_argument(
        "--labels", nargs="+", help="what a classifier's labels are to be called, in their order"
    )
    parser.add_argument(
        "--alias",
        nargs="+",
        help="other names that find it; without the flag those that it has",
    )
    parser.add_argument(
        "--default-for", nargs="+", metavar="VERB", help="verbs that it is the default for"
    )
    parser.add_argument("--most-bytes", type=int, default=MOST_BYTES)
    return parser.parse_args(args)


def embed(options: argparse.Namespace) -> dict[str, Any]:
    if not options.name or not set(options.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-"):
        raise ConfigError(f"a name has small letters, digits and hyphens; got {options.name!r}")
    checkpoint, _ = load_checkpoint(options.run)
    source, weights = find_checkpoint(options.run), chosen_weights(options)
    if options.labels:
        if weights is None:
            raise ConfigError(
                f"{source} is stored as a difference, and its labels with it; embed the run itself "
                "to name them"
            )
        checkpoint = named(checkpoint, tuple(options.labels))
    card = make_card(options, checkpoint, stored_as(weights, source))
    target = options.into / options.name
    models = list(embedded_models(options.into)) if (options.into / INDEX).exists() else []
    others = sum(model.num_bytes for model in models if model.name != options.name)
    before = next((model for model in models if model.name == options.name), None)
    aliases = tuple(options.alias or (before.aliases if before else ()))
    default_for = tuple(options.default_for or (before.default_for if before else ()))
    if unable := sorted(set(default_for) - set(card.verbs)):
        raise ConfigError(f"{options.name} cannot {', '.join(unable)}, so it is no default for it")

    def write(folder: Path) -> None:
        if weights is None:
            for name in (CONFIG, WEIGHTS, TASK):
                if (source / name).exists():
                    shutil.copyfile(source / name, folder / name)
        else:
            checkpoint.write(folder, weights=weights)
        (folder / CARD).write_text(
            json.dumps(card.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        (folder / PAGE).write_text(card.page(), encoding="utf-8")
        for path in folder.iterdir():
            path.chmod(0o644)  # safetensors writes for the owner alone; a package is for everyone
        size = sum(path.stat().st_size for path in folder.iterdir())
        is_small = size <= MOST_DIFFERENCE or not card.shape["weights"].startswith("difference")
        if not is_small:
            raise ConfigError(
                f"{options.name} has {size:,} bytes, a difference takes {MOST_DIFFERENCE:,} at "
                "most; lower --rank or --token-rank"
            )
        if others + size > options.most_bytes:
            beside = f" beside {others:,} of other models" if others else ""
            raise ConfigError(
                f"{options.name} has {size:,} bytes{beside}, a package takes "
                f"{options.most_bytes:,}; choose a smaller model"
            )

    write_folder(target, write, replace=target.exists())
    (target / "manifest.json").chmod(0o644)
    stored = Checkpoint.load(target)
    embedded = EmbeddedModel(
        name=options.name,
        verbs=card.verbs,
        folder=target,
        aliases=aliases,
        default_for=default_for,
    )
    names = [model.name for model in models]
    position = names.index(embedded.name) if embedded.name in names else len(models)
    models = models[:position] + models[position + 1 :]
    models.insert(0 if options.first else position, embedded)
    (options.into / INDEX).write_text(index_text(models), encoding="utf-8")
    files = {path.name: path.stat().st_size for path in sorted(target.iterdir())}
    report = {
        "folder": str(target),
        "verbs": card.verbs,
        "parameters": card.parameters,
        "files": files,
    }
    report |= {"bytes": embedded.num_bytes, "bytes_of_all": others + embedded.num_bytes}
    if isinstance(weights, Difference):
        report["lost"] = lost(checkpoint, stored, Checkpoint.load(weights.base))
    return report


def chosen_weights(options: argparse.Namespace) -> Storage | Difference | None:
    """How the weights are to be stored; None for a difference that is to stay as it is."""
    if options.based_on:
        return Difference(
            base=options.into / options.based_on, rank=options.rank, token_rank=options.token_rank
        )
    source = find_checkpoint(options.run)
    return None if (source / CONFIG).exists() and is_difference(source) else "int8"


def stored_as(weights: Storage | Difference | None, source: Path) -> str:
    """The card's word on how the weights are stored."""
    if isinstance(weights, Difference):
        return f"difference of rank {weights.rank} to {Path(weights.base).name}"
    return weights or str(read_json(source / CARD)["shape"]["weights"])


def named(checkpoint: Checkpoint, labels: tuple[str, ...]) -> Checkpoint:
    """A classifier with other names for its labels."""
    card = TaskCard.from_dict(checkpoint.task or {})
    if len(labels) != len(card.task.labels):
        raise ConfigError(
            f"the model has the labels {', '.join(card.task.labels)}; got {len(labels)} names for "
            "them"
        )
    config = checkpoint.model.config
    heads = tuple(
        replace(head, labels=labels) if head.kind == card.task.head else head
        for head in config.heads
    )
    checkpoint.model.config = replace(config, heads=heads)
    return replace(checkpoint, task=replace(card, task=replace(card.task, labels=labels)).to_dict())


def lost(exact: Checkpoint, stored: Checkpoint, base: Checkpoint) -> dict[str, float]:
    """Of each weight that changed and is not stored whole, the length of what is missing in parts
    of the change's."""
    truth, restored = exact.model.state_dict(), stored.model.state_dict()
    missing = {name: (truth[name] - restored[name]).norm().item() for name in truth}
    before = base.model.state_dict()
    return {
        name: float(f"{length / (truth[name] - before.get(name, 0)).norm().item():.3g}")
        for name, length in missing.items()
        if length
    }


def make_card(options: argparse.Namespace, checkpoint: Checkpoint, weights: str) -> ModelCard:
    """What a person gave, what the model is, and what its run wrote down."""
    run, facts = options.run, read_json(options.facts) if options.facts else {}
    known = read_json(run / CARD) if (run / CARD).exists() else {}
    unknown = sorted(facts.keys() - set(AUTHOR_FACTS))
    if unknown:
        raise ConfigError(
            f"a person gives {', '.join(AUTHOR_FACTS)}; {', '.join(unknown)} is none of these"
        )
    config = checkpoint.model.config.encoder
    shape = (
        "vocab_size",
        "embedding_size",
        "hidden_size",
        "num_layers",
        "num_attention_heads",
        "ffn_size",
        "max_positions",
    )
    read_off = {
        "name": options.name,
        "verbs": list(Predictor(TorchEngine(checkpoint), task=checkpoint.task).verbs),
        "parameters": sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        "shape": {setting: getattr(config, setting) for setting in (*shape, "share", "norm")}
        | {"weights": weights},
        "run": run_record(run) or known.get("run"),
    }
    return ModelCard.from_dict(
        {fact: known[fact] for fact in AUTHOR_FACTS if fact in known} | facts | read_off
    )


def run_record(run: Path) -> dict[str, Any]:
    records = {
        name: read_json(run / file) for name, file in RECORDS.items() if (run / file).exists()
    }
    return {
        name: {key: value for key, value in record.items() if key not in NOT_TOLD}
        for name, record in records.items()
    }


def read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} should hold a JSON object, it holds a {type(data).__name__}")
    return data


if __name__ == "__main__":
    main()
