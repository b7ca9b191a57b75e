"""The vectors of a teacher: texts and a sentence-transformers folder in; a .npy file for
`litebert finetune embed --teacher` out.

    python -m tools.teacher_vectors MODEL texts.txt vectors.npy [--size 128 | --like base]

A line of texts.txt is a text; row n of vectors.npy, in float16, belongs to line n. MODEL is a
folder that sentence-transformers reads. The report has the seconds: --limit 500 tells how long all
texts will take.

--size keeps as many principal directions of the vectors, which are then of length 1 again: cosines
change little, files a lot. --like STUDENT turns the vectors into the wider space of a litebert
model, as near to its own as a rotation brings them: cosines stay exactly what they are, and the
student learns each vector by itself instead of the cosines of a batch.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import litebert
from litebert.files import open_atomic
from litebert.tasks.tables.rows import read_rows

ALIGNED = 2000
"""Texts by which --like finds the rotation."""


def read_texts(path: Path) -> list[str]:
    """One a line, as `--texts` reads them: str.splitlines would also cut at U+2028 and others."""
    return [str(row["text"]) for _, row in read_rows(path)]


def directions(vectors: np.ndarray, size: int) -> np.ndarray:
    """The strongest directions through the origin, so that cosines stay what they mean."""
    _, _, rows = np.linalg.svd(vectors.T @ vectors)
    strongest: np.ndarray = rows[:size]
    return strongest


def normalized(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: np.ndarray = vectors / np.maximum(lengths, 1e-12)
    return scaled


def rotated_like(vectors: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The teacher's vectors in a student's wider space. `own` are the student's vectors of the
    first texts, whose mean is taken out: every vector of an untuned encoder has a large part in
    common. (Orthogonal Procrustes: Schönemann 1966)"""
    centered = normalized(own - own.mean(0))
    left, _, right = np.linalg.svd(centered.T @ vectors[: len(own)], full_matrices=False)
    turned: np.ndarray = vectors @ (left @ right).T
    return turned


def main() -> None:
    from sentence_transformers import SentenceTransformer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    width = parser.add_mutually_exclusive_group()
    width.add_argument("--size", type=int, help="numbers of a vector; by default the teacher's")
    width.add_argument("--like", metavar="STUDENT", help="in this litebert model's space")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--limit", type=int, help="texts that are read, for a trial")
    args = parser.parse_args()
    texts = read_texts(args.texts)[: args.limit]
    model = SentenceTransformer(str(args.model))
    began = time.monotonic()
    vectors = normalized(model.encode(texts, batch_size=args.batch, convert_to_numpy=True))
    variance = 1.0
    if args.size is not None and args.size < vectors.shape[1]:
        rotated = vectors @ directions(vectors.astype(np.float64), args.size).T
        variance = float((rotated**2).sum(1).mean())
        vectors = normalized(rotated)
    if args.like is not None:
        own = np.asarray(litebert.load(args.like).embed(texts[:ALIGNED]), np.float64)
        vectors = rotated_like(vectors.astype(np.float64), own)
    with open_atomic(args.out) as file:
        np.save(file, vectors.astype(np.float16))
    report = {
        "texts": len(texts),
        "size": vectors.shape[1],
        "variance": round(variance, 4),
        "seconds": round(time.monotonic() - began, 1),
        "megabytes": round(args.out.stat().st_size / 1e6, 1),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
