"""Texts in, one vector a text out: the mean of the last states over all tokens, or the state of
[CLS].

A text that is longer than the model reads is cut at its end.
"""

import os
from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from litebert.errors import ConfigError
from litebert.infer.rows import Row, States, encode_rows
from litebert.infer.verbs import Pooling
from litebert.model.model import Model
from litebert.text.tokenizer import Tokenizer

TEXTS = 1024
"""Split into pieces together, and put into batches of like length."""
THREADS = 8
"""That split texts into pieces, to keep up with a GPU."""


def embed_texts(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    pooling: Pooling,
    normalize: bool,
    batch_tokens: int,
    device: torch.device,
) -> Float[np.ndarray, "texts hidden"]:
    """A vector for each text, in the order of the texts; of length 1 where `normalize` asks for
    it."""
    found = np.zeros((len(texts), model.config.encoder.hidden_size), np.float32)
    fetched = Fetched(found, device)
    threads = min(THREADS, os.cpu_count() or 1) if device.type == "cuda" else 1
    for start in range(
        0, len(texts), TEXTS
    ):  # a GPU is busy with some texts while the next are split into pieces
        some, limit = texts[start : start + TEXTS], model.config.encoder.max_positions
        rows = text_rows(tokenizer, some, max_length=limit, num_threads=threads)
        batches = encode_rows(
            model,
            rows,
            pad_id=tokenizer.pad_id,
            batch_tokens=batch_tokens,
            device=device,
            first_only=pooling == "cls",
        )
        for batch in batches:
            fetched.put(start + batch.rows, POOLINGS[pooling](batch).float())
    fetched.finish()
    if normalize:
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
    return found


class Fetched:
    """Rows of a device into rows of an array: from a GPU through pinned memory, waited for once, at
    the end."""

    def __init__(self, into: Float[np.ndarray, "texts hidden"], device: torch.device) -> None:
        self.into, self.is_cuda = into, device.type == "cuda"
        self.held: list[tuple[np.ndarray, Tensor]] = []

    def put(self, rows: Int[np.ndarray, " batch"], vectors: Float[Tensor, "batch hidden"]) -> None:
        if not self.is_cuda:
            self.into[rows] = vectors.numpy()
            return
        pinned = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
        self.held.append((rows, pinned.copy_(vectors, non_blocking=True)))

    def finish(self) -> None:
        if self.held:
            torch.cuda.current_stream().synchronize()
        for rows, pinned in self.held:
            self.into[rows] = pinned.numpy()


def text_rows(
    tokenizer: Tokenizer, texts: Sequence[str], *, max_length: int, num_threads: int = 1
) -> list[Row]:
    """[CLS] text [SEP] of every text, in at most `max_length` tokens."""
    ids, bounds = tokenizer.encode_flat(texts, num_threads=num_threads)
    ends = np.minimum(bounds[1:], bounds[:-1] + max_length - 2)
    first, last = np.array([tokenizer.cls_id], ids.dtype), np.array([tokenizer.sep_id], ids.dtype)
    return [
        np.concatenate([first, ids[start:end], last])
        for start, end in zip(bounds.tolist(), ends.tolist(), strict=False)
    ]


def check_pooling(pooling: str) -> None:
    """Refuse a way of pooling that does not exist."""
    if pooling not in get_args(Pooling):
        raise ConfigError(f"pooling is one of {', '.join(get_args(Pooling))}; got {pooling!r}")


def _mean(batch: States) -> Tensor:
    """Over every real token, [CLS] and [SEP] among them, as sentence-transformers does."""
    if batch.mask is None:
        return batch.states.mean(1)
    weights = batch.mask.to(batch.states.dtype)[..., None]
    return (batch.states * weights).sum(1) / weights.sum(1)


def _cls(batch: States) -> Tensor:
    return batch.states[:, 0]


POOLINGS = {"mean": _mean, "cls": _cls}
