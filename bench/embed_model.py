"""Put a trained model into the package: weights in 8 bits, its card, and its line in the index. Prints sizes as JSON.

    python bench/embed_model.py RUN --name base --facts facts.json [--first] [--into src/litebert/models]

RUN is the folder of a run or of a checkpoint, or the embedded folder itself, to make its card anew: 8 bits go back to the same
8 bits. The facts are a JSON object of what only a person knows,

    {"summary": "…", "license": "…", "data": [{"name": "…", "license": "…", "note": "…"}], "recipe": {"name": "value"},
     "scores": [{"task": "…", "score": "…", "value": 0.9, "split": "dev", "note": "…"}], "limits": ["…"]}

and the rest is read off the model and its run. A model that exists under this name is replaced, and keeps its place in the
index; a new one comes last, or with --first becomes the default for all that it can do.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert.atomic import write_folder
from litebert.checkpoint import Checkpoint
from litebert.errors import ConfigError, LitebertError
from litebert.infer.predictor import Predictor
from litebert.models.card import GIVEN, ModelCard
from litebert.models.index import CARD, INDEX, PAGE, ROOT, EmbeddedModel, embedded_models, index_text
from litebert.train.source import open_model

MOST_BYTES = 14_000_000
"""Of a model's folder: what a package may weigh."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run or of a checkpoint")
    parser.add_argument("--name", required=True, help="what the model is to be called: small letters, digits and hyphens")
    parser.add_argument(
        "--facts", type=Path, help="JSON of what a person knows; without it, those of the card beside the model"
    )
    parser.add_argument("--into", type=Path, default=ROOT, help="folder of the index")
    parser.add_argument("--first", action="store_true", help="make it the default for all that it can do")
    parser.add_argument("--most-bytes", type=int, default=MOST_BYTES)
    return parser.parse_args(args)


def embed(options: argparse.Namespace) -> dict[str, Any]:
    if not options.name or not set(options.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-"):
        raise ConfigError(f"a name has small letters, digits and hyphens; got {options.name!r}")
    checkpoint, _ = open_model(options.run)
    card = make_card(options.name, checkpoint, options.run, read_json(options.facts) if options.facts else {})
    target = options.into / options.name

    def write(folder: Path) -> None:
        checkpoint.write(folder, weights="int8")
        (folder / CARD).write_text(json.dumps(card.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / PAGE).write_text(card.page(), encoding="utf-8")
        for path in folder.iterdir():
            path.chmod(0o644)  # safetensors writes for the owner alone; a package is for everyone
        size = sum(path.stat().st_size for path in folder.iterdir())
        if size > options.most_bytes:
            raise ConfigError(
                f"{options.name} has {size:,} bytes, a package takes {options.most_bytes:,}; choose a smaller model"
            )

    write_folder(target, write, replace=target.exists())
    (target / "manifest.json").chmod(0o644)
    Checkpoint.load(target)
    models = list(embedded_models(options.into)) if (options.into / INDEX).exists() else []
    made = EmbeddedModel(name=options.name, verbs=card.verbs, folder=target)
    place = next((at for at, model in enumerate(models) if model.name == made.name), len(models))
    models = models[:place] + models[place + 1 :]
    models.insert(0 if options.first else place, made)
    (options.into / INDEX).write_text(index_text(models), encoding="utf-8")
    files = {path.name: path.stat().st_size for path in sorted(target.iterdir())}
    return {"folder": str(target), "verbs": card.verbs, "parameters": card.parameters, "files": files, "bytes": made.num_bytes}


def make_card(name: str, checkpoint: Checkpoint, run: Path, facts: dict[str, Any]) -> ModelCard:
    """What a person gave, what the model is, and what its run wrote down."""
    known = read_json(run / CARD) if (run / CARD).exists() else {}
    unknown = sorted(facts.keys() - set(GIVEN))
    if unknown:
        raise ConfigError(f"a person gives {', '.join(GIVEN)}; {', '.join(unknown)} is none of these")
    config = checkpoint.model.config.encoder
    shape = ("vocab_size", "embedding_size", "hidden_size", "num_layers", "num_attention_heads", "ffn_size", "max_positions")
    read_off = {
        "name": name,
        "verbs": list(Predictor(checkpoint).verbs),
        "parameters": sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        "shape": {setting: getattr(config, setting) for setting in (*shape, "share", "norm")} | {"weights": "int8"},
        "run": run_record(run) or known.get("run"),
    }
    return ModelCard.from_dict({fact: known[fact] for fact in GIVEN if fact in known} | facts | read_off)


def run_record(run: Path) -> dict[str, Any]:
    found = {name: read_json(run / file) for name, file in RECORDS.items() if (run / file).exists()}
    return {name: {key: value for key, value in record.items() if key not in NOT_TOLD} for name, record in found.items()}


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
