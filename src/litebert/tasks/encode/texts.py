"""Single texts in; rows of token ids out."""

from collections.abc import Sequence

import numpy as np

from litebert.packing import num_special
from litebert.shapes import Int
from litebert.text.tokenizer import Tokenizer

Row = Int[np.ndarray, " _tokens"]


def encode_texts(
    tokenizer: Tokenizer, texts: Sequence[str], *, max_length: int, num_threads: int = 1
) -> list[Row]:
    """[CLS] text [SEP] for every text, cut at its end to `max_length` tokens."""
    ids, bounds = tokenizer.encode_flat(texts, num_threads=num_threads)
    ends = np.minimum(bounds[1:], bounds[:-1] + max_length - num_special(False))
    first, last = np.array([tokenizer.cls_id], ids.dtype), np.array([tokenizer.sep_id], ids.dtype)
    return [
        np.concatenate([first, ids[start:end], last])
        for start, end in zip(bounds.tolist(), ends.tolist(), strict=False)
    ]
