"""Texts with [MASK] in, the likeliest pieces for each out (ALBERT §3.1, the masked token's head).
 A text around its masks is split into pieces as it would be with any word in their place: what
follows a mask without a space ("[MASK].") continues a word, what follows it after one begins a
word.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from litebert.errors import DataError
from litebert.infer.rows import Row, encode_rows
from litebert.model.model import Model
from litebert.text.tokenizer import Tokenizer

MASK = "[MASK]"
SPACE = "▁"
_PRIVATE = range(0xE000, 0xF900)  # characters that Unicode gives no meaning


class Guess(NamedTuple):
    """What may stand in place of a mask."""

    token: str
    """The piece, without the mark of a word's beginning."""
    probability: float


def fill_texts(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    top: int,
    batch_tokens: int,
    device: torch.device,
) -> list[list[list[Guess]]]:
    """For each text, for each of its masks, the `top` best guesses, the best first."""
    limit, wall = model.config.encoder.max_positions, unused_character(tokenizer)
    rows = [masked_row(tokenizer, text, max_length=limit, wall=wall) for text in texts]
    found: list[list[list[Guess]]] = [[] for _ in texts]
    for batch in encode_rows(
        model, rows, pad_id=tokenizer.pad_id, batch_tokens=batch_tokens, device=device
    ):
        width = batch.states.shape[1]
        places = [
            np.flatnonzero(rows[number] == tokenizer.mask_id) for number in batch.rows.tolist()
        ]
        flat = np.concatenate([place * width + masks for place, masks in enumerate(places)])
        owners = np.repeat(batch.rows, [len(masks) for masks in places])
        # Rows of an embedding beyond the vocabulary, which some models have, stand for no piece.
        logits = model.masked_logits(batch.states, torch.from_numpy(flat).to(device))[
            :, : tokenizer.vocab_size
        ]
        best = logits.float().softmax(-1).topk(min(top, tokenizer.vocab_size))
        for owner, ids, values in zip(
            owners.tolist(), best.indices.tolist(), best.values.tolist(), strict=True
        ):
            found[owner].append(
                [
                    Guess(_shown(tokenizer.pieces[i]), value)
                    for i, value in zip(ids, values, strict=True)
                ]
            )
    return found


def unused_character(tokenizer: Tokenizer) -> str:
    """A character that no piece has, and that so joins no piece."""
    used = set().union(*tokenizer.pieces)
    return next(chr(code) for code in _PRIVATE if chr(code) not in used)


def masked_row(tokenizer: Tokenizer, text: str, *, max_length: int, wall: str) -> Row:
    """[CLS] text [SEP] with the mask's id at every [MASK]; DataError where there is none, or it
    lies too far behind.

    What follows a mask is split behind `wall`, an unused character that stands for the end of the
    word in its place.
    """
    first, *others = text.split(MASK)
    if not others:
        raise DataError(
            f"there is no {MASK} in the text {_beginning(text)!r}; write it where a word is to be "
            "found"
        )
    ids = tokenizer.encode(first)
    for tokens in tokenizer.encode_with_offsets([wall + part for part in others]):
        behind = tokens.offsets[:, 1] > len(wall)
        ids += [tokenizer.mask_id, *np.array(tokens.ids, np.int64)[behind].tolist()]
    last = max(place for place, id in enumerate(ids) if id == tokenizer.mask_id)
    if last + 1 > max_length - 2:
        raise DataError(
            f"a {MASK} is token {last + 2} of the text {_beginning(text)!r}, the model reads "
            f"{max_length}; "
            "shorten what comes before it"
        )
    return np.array([tokenizer.cls_id, *ids[: max_length - 2], tokenizer.sep_id], np.int64)


def _shown(piece: str) -> str:
    return piece.removeprefix(SPACE) or piece


def _beginning(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[:limit] + "…"
