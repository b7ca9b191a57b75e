"""Vectors of models beside words: STS-B by cosine, and finding documents.

    python -m bench.studies.similarity --models base similarity --tasks TASKS --retrieval DIR … \\
        --out FILE.json [--teacher FOLDER] [--samples 1000]

TASKS is what tools/model_data.py writes (similarity/dev.csv is STS-B dev, retrieval/squad its dev
questions); each DIR of --retrieval is a set in BEIR's layout, plain or .xz. Beside each model stand
TF-IDF and BM25, and with --teacher a sentence-transformers folder. The mean is over the sets, each
of which counts once. Prints a table and writes the rows as JSON.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bench.common.results import begin, publish
from bench.common.tables import markdown
from litebert.infer.predictor import Predictor, load
from litebert.infer.vector_scores import score_retrieval, score_similarity
from litebert.tasks.scores.vectors import score_similarity as score_vectors
from litebert.tasks.scores.vectors import words
from litebert.tasks.tables.pairs import open_scored_pairs


class Teacher:
    """A sentence-transformers model where a Predictor is expected."""

    def __init__(self, folder: Path) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(str(folder))

    def embed(self, texts: Sequence[str], **options: Any) -> np.ndarray:
        vectors: np.ndarray = self.model.encode(list(texts), convert_to_numpy=True)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def word_vectors(texts: Sequence[str]) -> np.ndarray:
    """TF-IDF vectors over the words of these texts alone, of length 1."""
    counts = [Counter(words(text)) for text in texts]
    spread = Counter(word for each in counts for word in each)
    known = {word: number for number, word in enumerate(spread)}
    rows = np.zeros((len(texts), len(known)), np.float32)
    for number, each in enumerate(counts):
        for word, times in each.items():
            rows[number, known[word]] = times * (
                math.log((1 + len(texts)) / (1 + spread[word])) + 1
            )
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def files(folder: Path) -> dict[str, Path]:
    """The three files of a set in BEIR's layout."""

    def find(stem: str) -> Path:
        return next(p for p in (folder / stem, folder / f"{stem}.xz") if p.exists())

    return {
        "queries": find("queries.jsonl"),
        "corpus": find("corpus.jsonl"),
        "qrels": find("qrels/test.tsv"),
    }


def row(name: str, model: Any, args: argparse.Namespace) -> dict[str, Any]:
    """One model on everything; baselines ride along."""
    predictor = cast(Predictor, model)
    pairs = args.tasks / "similarity/dev.csv"
    stsb = score_similarity(predictor, pairs, samples=args.samples)
    sets = {}
    for folder in args.retrieval:
        scored = score_retrieval(predictor, **files(folder), samples=args.samples)
        sets[folder.name] = {
            "scores": scored.scores,
            "intervals": scored.intervals,
            "baselines": scored.baselines,
        }
    return {"model": name, "stsb": stsb.scores, "stsb_intervals": stsb.intervals, "sets": sets}


def table(rows: list[dict[str, Any]], words_alone: dict[str, float]) -> str:
    """Spearman on STS-B and nDCG@10 of each set, times 100."""
    names = list(rows[0]["sets"])
    lines = []
    for each in rows:
        ndcg = [each["sets"][name]["scores"]["ndcg_at_10"] for name in names]
        lines.append((each["model"], each["stsb"]["spearman"], ndcg))
    for baseline, spearman in (("tfidf", words_alone["spearman"]), ("bm25", None)):
        ndcg = [rows[0]["sets"][name]["baselines"][baseline]["ndcg_at_10"] for name in names]
        lines.append(({"tfidf": "TF-IDF", "bm25": "BM25"}[baseline], spearman, ndcg))
    others = [number for number, name in enumerate(names) if name != "squad"]

    def shown(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.1f}"

    cells = [
        [
            name,
            shown(spearman),
            *map(shown, ndcg),
            shown(float(np.mean([ndcg[n] for n in others])) if others else None),
        ]
        for name, spearman, ndcg in lines
    ]
    return markdown(["", "STS-B dev", *names, "mean without squad"], cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--retrieval", type=Path, nargs="+", default=[])
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    begin(args.out)
    pairs, _ = open_scored_pairs(args.tasks / "similarity/dev.csv")
    texts = [*(pair.first for pair in pairs), *(pair.second or "" for pair in pairs)]
    words_alone = score_vectors(pairs, word_vectors(texts), samples=args.samples).scores
    rows = [row(name, load(name, device=args.device), args) for name in args.models]
    if args.teacher is not None:
        rows.append(row(args.teacher.name, Teacher(args.teacher), args))
    publish({"rows": rows, "tfidf_stsb": words_alone}, args.out)
    print(table(rows, words_alone), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
