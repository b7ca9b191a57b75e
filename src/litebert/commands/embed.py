"""litebert embed: texts in; one vector a text out, as a .npy file, or printed with the nearest
other text."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from litebert.commands.asking import Texts, given, open_model, tell
from litebert.errors import ConfigError, DataError
from litebert.files import open_atomic
from litebert.infer.verbs import Pooling

COMPARED = 100
"""Texts up to which the nearest of each is told; more are for --out and a library that searches."""


def embed(
    texts: Texts = (),
    /,
    *,
    model: str | None = None,
    pooling: Pooling = "mean",
    normalize: bool = False,
    out: str | None = None,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Turn texts into vectors: litebert embed "a sentence" "another".

    Args:
        texts: Texts; without any, or as "-", the lines of standard input.
        model: Folder of a checkpoint, a run or a Hugging Face model, or a name of `litebert
            models`; else the first of those
            that can do this.
        pooling: The mean of all tokens' states, or the state of [CLS].
        normalize: Scale every vector to length 1.
        out: A .npy file to write the vectors to, one row a text.
        device: cpu, cuda, cuda:1 …, or auto.
        json: Print one JSON object, the vectors in full.
    """
    if out is not None and not out.endswith(".npy"):
        raise ConfigError(f"--out is a .npy file; got {out}")
    asked = given(texts)
    vectors = open_model(model, device, "embed").embed(asked, pooling=pooling, normalize=normalize)
    if out is not None:
        try:
            with open_atomic(out) as file:
                np.save(file, vectors)
        except OSError as error:
            raise DataError(
                f"{out} cannot be written ({error.strerror}); choose another --out"
            ) from error
        print(f"{out}: {vectors.shape[0]} vectors of {vectors.shape[1]}", file=sys.stderr)
        if not json:
            return
    answers: list[dict[str, Any]] = [
        {"text": text, "vector": vector.tolist()}
        for text, vector in zip(asked, vectors, strict=True)
    ]
    if not json and 1 < len(asked) <= COMPARED:
        answers = [
            answer | near for answer, near in zip(answers, nearest(asked, vectors), strict=True)
        ]
    tell(answers, _line, json=json)


def nearest(texts: Sequence[str], vectors: np.ndarray) -> list[dict[str, Any]]:
    """Of each text, the other whose vector points most nearly in its direction."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (vectors / np.maximum(lengths, 1e-12)) @ (vectors / np.maximum(lengths, 1e-12)).T
    np.fill_diagonal(cosines, -2)
    return [{"nearest": texts[row.argmax()], "cosine": float(row.max())} for row in cosines]


def _line(answer: dict[str, Any]) -> str:
    """A glance; the numbers themselves are for --json and --out."""
    vector = answer["vector"]
    some = " ".join(f"{number:.4f}" for number in vector[:6])
    shown = f"{answer['text']}\n  [{some} …] ({len(vector)} numbers, length {float(np.linalg.norm(vector)):.4f})"
    return (
        f"{shown}\n  nearest: {answer['nearest']} (cosine {answer['cosine']:.2f})"
        if "nearest" in answer
        else shown
    )
