"""The facts of a tuned model's card, from its records: its run, its scores as stored, and the
sources of its data in; JSON for tools/embed_model.py out.

    python -m tools.tuned_facts NAME RUN --sources tasks/sources.json --base BASE \\
        [--stored scores/NAME.json …] [--predictions NAME.jsonl] > facts/NAME.json

RUN is the folder of the fine-tuning run, or of its seeds. --stored is the JSON of `litebert
evaluate` for the model as it is stored, one file or several; without it a card has no scores, and
the model is embedded once to be scored. --predictions is what `litebert evaluate --out` writes: the
most confidently wrong of them are the examples of failure. The words are here, the numbers there.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from litebert.loading import find_checkpoint
from litebert.model.count import flops_per_token
from litebert.storage.checkpoint import read_config
from litebert.tasks.predictions import load_predictions
from litebert.tasks.scores.evaluation import worst

SUMMARIES = {
    "sentiment": "Classifies the sentiment of a review or a sentence as positive or negative.",
    "pair": "Says whether a first text entails a second one, contradicts it, or neither.",
    "answer": "Finds the answer to a question in a text, as a span of it.",
    "tag": "Tags the words of a sentence with their part of speech (Universal Dependencies).",
    "similarity": "Embeds texts so that the cosine of two vectors says how alike they are.",
}
PART = {"pair": "nli"}
"""The part of sources.json, where it is not the model's own name."""
LIMITS = {
    "sentiment": ["Trained on film reviews; it has two labels and gives one of them to a neutral"
                  " text too.", "Long training texts are joined phrases, not written as one."],
    "pair": ["Short texts of one or two sentences."],
    "answer": ["It always answers, also where the text has no answer."],
    "tag": ["English web text; words are split as Universal Dependencies does."],
    "similarity": ["English; texts of more than 128 tokens are longer than those of training."],
}  # fmt: skip
NUM_FAILURES, MOST_CHARACTERS = 5, 160


def facts(args: argparse.Namespace) -> dict[str, Any]:
    runs = sorted(args.run.glob("seed-*")) or [args.run]
    results = [json.loads((run / "result.json").read_text()) for run in runs]
    recipe = json.loads((runs[0] / "recipe.json").read_text())["recipe"]
    sources = json.loads(args.sources.read_text())[PART.get(args.name, args.name)]
    return {
        "summary": f"{SUMMARIES[args.name]} `{args.base}`, fine-tuned.",
        "license": "Apache-2.0",
        "data": [
            {
                "name": source["name"],
                "license": source["license"],
                "note": "; ".join(filter(None, (f"{source['rows']:,} rows", source["note"]))),
            }
            for source in sources
        ]
        + [{"name": f"the pretraining data of {args.base}", "license": "see its card", "note": ""}],
        "recipe": described(args, recipe, results),
        "scores": [fact for path in args.stored for fact in scores(path, results)],
        "limits": [*LIMITS[args.name], "It is small: examples of failure are below."],
        "failures": [] if args.predictions is None else failures(args.predictions),
    }


def described(
    args: argparse.Namespace, recipe: dict[str, Any], results: list[dict[str, Any]]
) -> dict[str, Any]:
    """How it was trained: all seeds count."""
    optimizer, tokens = recipe["optimizer"], sum(result["tokens"] for result in results)
    encoder = read_config(find_checkpoint(args.run)).encoder
    plain = replace(encoder, pooler=False)
    per_token = flops_per_token(plain, seq=recipe["max_length"], masked_fraction=0.0, training=True)
    facts: dict[str, Any] = {
        "from": args.base,
        "optimizer": f"{optimizer['name']}, learning rate {optimizer['learning_rate']:.2g}",
        "steps": results[0]["steps"],
        "batch size": recipe["batch_size"],
        "tokens": tokens,
        "FLOPs": f"{tokens * per_token:.2e}",
        "minutes": round(sum(result["seconds"] for result in results) / 60, 2),
        "stored as": args.stored_as,
    }
    if len(results) > 1:
        facts["seed"] = f"the best on dev of {len(results)}"
    temperatures = [r["temperature"] for r in results if r.get("temperature", 1) != 1]
    if temperatures:
        facts["calibration"] = "a temperature chosen on a tenth of train"
    teacher = args.teacher
    return facts | ({"teacher": teacher} if teacher else {})


def scores(path: Path, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every score of an evaluation, with its interval and what the float weights had on the same
    examples, and the calibration error."""
    stored = json.loads(path.read_text())
    best = max(results, key=lambda result: result["score"] or 0)
    exact = best["scores"] if best["dev_examples"] == stored.get("num_examples") else {}
    task = stored.get("task", path.stem)
    count = next(
        (stored[name] for name in ("num_examples", "num_pairs", "num_queries") if name in stored),
        None,
    )
    rows = []
    for name, value in stored["scores"].items():
        if value is None:
            continue
        ends = stored.get("intervals", {}).get(name)
        interval = (
            ""
            if ends is None
            else "; 95 % interval {:.1f} to {:.1f}".format(*(100 * end for end in ends))
        )
        note = f"as stored, {count:,} examples{interval}" if count else f"as stored{interval}"
        note += f"; {100 * exact[name]:.1f} before" if exact.get(name) is not None else ""
        rows.append(fact(task, name, value, stored.get("split", "dev"), note))
    for name in ("bm25", "tfidf"):
        for score, value in (stored.get("baselines") or {}).get(name, {}).items():
            rows.append(fact(task, score, value, "dev", f"{name}, for comparison"))
    calibration = stored.get("calibration")
    if calibration:
        split = stored.get("split", "dev")
        rows.append(fact(task, "calibration error", calibration["error"], split, "as stored"))
    return rows


def fact(task: str, score: str, value: float, split: str, note: str) -> dict[str, Any]:
    rounded = round(100 * value, 1)
    return {"task": task, "score": score, "value": rounded, "split": split, "note": note}


def failures(path: Path) -> list[str]:
    """The most confidently wrong predictions."""
    task, examples, predictions = load_predictions(path)
    lines = []
    for each in worst(task, examples, predictions, count=NUM_FAILURES):
        example: Any = each.example
        words = " ".join(getattr(example, "words", ()))
        first = getattr(example, "first", None) or getattr(example, "question", None) or words
        text = first if getattr(example, "second", None) is None else f"{first} / {example.second}"
        text = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"
        lines.append(f"“{text}”: {each.predicted}; right is {each.true}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=SUMMARIES)
    parser.add_argument("run", type=Path)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--base", default="base", help="name of the embedded model it starts from")
    parser.add_argument("--stored", type=Path, nargs="*", default=[])
    parser.add_argument("--predictions", type=Path)
    parser.add_argument("--stored-as", default="difference of rank 32, in int8")
    parser.add_argument("--teacher", help="whose vectors it learned, as the card names it")
    print(json.dumps(facts(parser.parse_args()), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
