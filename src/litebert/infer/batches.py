"""Rows of token ids in; padded batches of like lengths out, for fill and embed. numpy only."""

from collections.abc import Iterator, Sequence

import numpy as np

from litebert.packing import HostBatch, budget_batches
from litebert.shapes import Int

Row = Int[np.ndarray, " _tokens"]
Columns = Sequence[Int[np.ndarray, " _needed"]] | Int[np.ndarray, "_rows _needed"]
"""Of each row the columns whose last states are read."""
FIRST = np.zeros(1, np.int64)
"""The column of [CLS]."""


def row_batches(
    rows: Sequence[Row], needed: Columns | None, *, pad_id: int, batch_tokens: int
) -> Iterator[tuple[Int[np.ndarray, " batch"], HostBatch]]:
    """Numbers of rows, and those rows side by side, at most `batch_tokens` tokens with their
    padding; `needed` is None where all states are read."""
    lengths = np.array([len(row) for row in rows], np.int64)
    for numbers in budget_batches(lengths, tokens=batch_tokens):
        chosen = numbers.tolist()
        columns = None if needed is None else [needed[number] for number in chosen]
        yield numbers, padded_rows([rows[number] for number in chosen], columns, pad_id=pad_id)


def padded_rows(rows: Sequence[Row], needed: Columns | None, *, pad_id: int) -> HostBatch:
    """Rows side by side, with a mask where one is padded."""
    lengths = np.array([len(row) for row in rows], np.int64)
    width = int(lengths.max())
    mask: np.ndarray = np.arange(width) < lengths[:, None]
    token_ids = np.full(mask.shape, pad_id, np.int64)
    token_ids[mask] = np.concatenate(rows)
    arrays: dict[str, np.ndarray] = {"token_ids": token_ids}
    if not mask.all():
        arrays["mask"] = mask
    most = 0
    if needed is not None:
        columns = side_by_side(needed)
        arrays["needed"] = columns + np.arange(0, mask.size, width)[:, None]
        most = columns.shape[1]
    return HostBatch(arrays=arrays, longest=width, most_needed=most)


def side_by_side(columns: Columns) -> Int[np.ndarray, "rows most"]:
    """The columns of each row, then its first again until all rows have as many."""
    most = max(map(len, columns))
    return np.array(
        [np.append(each, np.repeat(each[:1], most - len(each))) for each in columns], np.int64
    )
