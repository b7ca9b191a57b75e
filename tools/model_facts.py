"""The facts of an embedded model's card: results in; JSON for tools/embed_model.py out.

    python -m tools.model_facts RESULTS > facts.json
    python -m tools.model_facts RESULTS --sentiment > facts.json
    python -m tools.model_facts RESULTS --name small --mix mix-1/mix.json … > facts/small.json

RESULTS holds benchmarks.json (bench/studies/benchmarks.py --table), pretraining.json
(tools/model_record.py) and, for the sentiment classifier, sentiment.json (`litebert evaluate sst2
--json` of it as it is stored). With --mix, of tools/mix_corpora.py, data and recipe are those of
the legs themselves, recipe_LEG.json; without it, of the models of November 2026.
RESULTS/blimp.json, `litebert evaluate blimp --json`, is a score too. The words are here, the
numbers there.
"""

import argparse
import json
from pathlib import Path
from typing import Any

DATA = [
    {
        "name": "English Wikipedia of May 2015",
        "license": "CC BY-SA 3.0",
        "note": "25,036 long articles, 383 MB",
    },
    {
        "name": "English Wikipedia, later articles",
        "license": "CC BY-SA 3.0",
        "note": "20,921 short ones, 50 MB",
    },
    {
        "name": "Project Gutenberg",
        "license": "public domain in the United States",
        "note": "406 books, 117 MB",
    },
]
LIMITS = [
    "English, lowercased. It knows what its articles and old books say, right or wrong, and "
    "nothing newer.",
    "It repeats the biases of its texts.",
    "It is small and was trained briefly: what it fills in is often plausible and wrong.",
    "Scores are those of the float weights, before int8; SST-2's and RTE's are those of the stored "
    "int8 weights.",
    "Embeddings are means of states, not trained for similarity; fine-tune before relying on them.",
]


CORPORA = {
    # beginning of a file's name, the longest first: name, license
    "wikipedia-recent": ("English Wikipedia, later articles", "CC BY-SA 3.0"),
    "wikipedia": ("English Wikipedia of May 2015", "CC BY-SA 3.0"),
    "dialogues": ("Schema-Guided Dialogue", "CC BY-SA 4.0"),
    "books": ("Project Gutenberg", "public domain in the United States"),
}
WORDS = {"masked": "masked tokens", "rtd": "replaced tokens", "sop": "the order of sentences"}


def pretrained_facts(
    name: str,
    rows: list[dict[str, Any]],
    pretraining: dict[str, Any],
    recipes: list[dict[str, Any]],
    mixes: list[dict[str, Any]],
    blimp: dict[str, Any] | None,
    *,
    is_cased: bool = False,
) -> dict[str, Any]:
    """Of a model that was pretrained in legs, from their own records."""
    minutes, recipe = pretraining["gpu_minutes"], recipes[-1]
    objectives = [WORDS[each] for each in (recipe["objective"], recipe["order"]) if each in WORDS]
    fractions = dict.fromkeys(str(each["mask_fraction"]) for each in recipes)
    scores = [score(row) for row in rows if "-" not in row["run"]]
    if blimp is not None:
        value, note = round(100 * blimp["overall"]["accuracy"], 1), "without fine-tuning, as stored"
        facts_of_blimp = {"task": "blimp", "score": "accuracy", "value": value, "split": "all"}
        scores.append(facts_of_blimp | {"note": note})
    return {
        "summary": (
            f"{recipe['preset']}, pretrained by litebert from scratch in {minutes:.0f} minutes on "
            f"one {pretraining['device']}. It fills masks and embeds texts, and is what "
            "fine-tuning starts from."
        ),
        "license": "Apache-2.0",
        "data": corpora(mixes),
        "recipe": {
            "objective": f"{' and '.join(objectives)}, masked at {' and '.join(fractions)}",
            "optimizer": (
                f"{recipe['optimizer']['name']}, learning rate "
                f"{recipe['optimizer']['learning_rate']:g}, no dropout"
            ),
            "legs": "; ".join(
                f"{leg['leg']}, step {leg['kept_step']:,} of {leg['steps']:,}"
                for leg in pretraining["legs"]
            ),
            "tokens": pretraining["tokens"],
            "steps": pretraining["steps"],
            "FLOPs": f"{pretraining['flops']:.2e}",
            "GPU minutes": minutes,
        },
        "scores": scores,
        "limits": [
            LIMITS[0].replace(", lowercased", "" if is_cased else ", lowercased"),
            *LIMITS[1:3],
            f"Scores of tasks are those of `{name}`, fine-tuned from its stored int8 weights.",
        ],
    }


def corpora(mixes: list[dict[str, Any]]) -> list[dict[str, str]]:
    """What the legs read: each file once, summed by corpus."""
    parts = {part["file"]: part for mix in mixes for part in mix["parts"]}
    sums: dict[str, list[float]] = {}
    for file, part in parts.items():
        name = next(each for each in CORPORA if file.startswith(each))
        total = sums.setdefault(name, [0, 0])
        total[0] += part["documents"]
        total[1] += part["megabytes"]
    return [
        {
            "name": CORPORA[name][0],
            "license": CORPORA[name][1],
            "note": f"{documents:,} documents, {megabytes:.0f} MB",
        }
        for name, (documents, megabytes) in sums.items()
    ]


def facts(
    rows: list[dict[str, Any]], pretraining: dict[str, Any], max_tokens: int
) -> dict[str, Any]:
    """What a person would give."""
    minutes, tokens = pretraining["gpu_minutes"], pretraining["tokens"]
    return {
        "summary": (
            f"albert-base in pre-norm form, pretrained by litebert from scratch in {minutes:.0f} "
            "minutes on one "
            f"{pretraining['device']}. It fills masks and embeds texts, and is what fine-tuning "
            "starts from."
        ),
        "license": "Apache-2.0",
        "data": DATA,
        "recipe": {
            "vocabulary": "30,000 tokens, trained on 300,000 lines of the same text",
            "objective": (
                "masked tokens (n-grams of up to 3 words, 15 %) and the order of sentences"
            ),
            "optimizer": "Muon, no dropout",
            "tokens": tokens,
            "steps": pretraining["steps"],
            "weights of": "; ".join(
                f"{leg['leg']}, step {leg['kept_step']:,} of {leg['steps']:,}"
                for leg in pretraining["legs"]
            ),
            "FLOPs": f"{pretraining['flops']:.2e}",
            "GPU minutes": minutes,
        },
        "scores": [score(row) for row in rows if "-" not in row["run"]],
        "limits": [*LIMITS, f"It reads {max_tokens} tokens at most."],
    }


def sentiment_facts(rows: list[dict[str, Any]], stored: dict[str, Any]) -> dict[str, Any]:
    """Of the classifier that was fine-tuned from `base` on SST-2."""
    row = next(row for row in rows if row["run"] == "sst2")
    best = max(row["seeds"])
    return {
        "summary": (
            "Classifies the sentiment of a sentence as positive or negative: `base`, fine-tuned on "
            "SST-2."
        ),
        "license": "Apache-2.0",
        "data": [
            {
                "name": "SST-2, as GLUE has it",
                "license": "none stated",
                "note": f"{row['train']:,} phrases of film reviews",
            },
            {
                "name": "the pretraining data of base",
                "license": "see its card",
                "note": "Wikipedia and old books",
            },
        ],
        "recipe": {
            "from": "base",
            "optimizer": (
                f"AdamW, learning rate {row['rate']:.1e}, {row['steps']:,} steps of 64 phrases, "
                "dropout 0.1"
            ),
            "seed": (
                f"the best on dev of {len(row['seeds'])}, {100 * best:.1f} before it was stored"
            ),
            "stored as": "the 32 strongest directions of each matrix's change, in int8",
        },
        "scores": [
            {
                "task": "sst2",
                "score": "accuracy",
                "value": round(100 * stored["scores"]["accuracy"], 1),
                "split": "dev",
                "note": "as stored; 95 % interval {:.1f} to {:.1f}".format(
                    *(100 * end for end in stored["intervals"]["accuracy"])
                ),
            }
        ],
        "limits": [
            "English film reviews, one sentence at a time; other texts were not measured.",
            "It has two labels, and gives one of them to a neutral sentence too.",
            "One sentence in seven is labeled wrongly.",
        ],
    }


def score(row: dict[str, Any]) -> dict[str, Any]:
    """The main score of a fine-tuned run, times 100."""
    seeds = len(row["seeds"])
    notes = [row["note"], f"median of {seeds} seeds" if seeds > 1 else ""]
    return {
        "task": row["run"],
        "score": row["score"],
        "value": round(100 * row["found"][row["score"]], 1),
        "split": "dev",
        "note": "; ".join(note for note in notes if note),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--name", default="base")
    parser.add_argument("--cased", action="store_true", help="the vocabulary keeps case")
    parser.add_argument("--mix", type=Path, nargs="+", help="mix.json of what the legs read")
    parser.add_argument("--sentiment", action="store_true", help="of the classifier, not of base")
    args = parser.parse_args()

    def read(name: str) -> Any:
        return json.loads((args.results / f"{name}.json").read_text())

    if args.mix:
        pretraining, blimp = read("pretraining"), args.results / "blimp.json"
        facts_of_model = pretrained_facts(
            args.name,
            read("benchmarks"),
            pretraining,
            [read(f"recipe_{leg['leg']}")["recipe"] for leg in pretraining["legs"]],
            [json.loads(path.read_text()) for path in args.mix],
            json.loads(blimp.read_text()) if blimp.exists() else None,
            is_cased=args.cased,
        )
    elif args.sentiment:
        facts_of_model = sentiment_facts(read("benchmarks"), read("sentiment"))
    else:
        facts_of_model = facts(read("benchmarks"), read("pretraining"), args.max_tokens)
    print(json.dumps(facts_of_model, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
