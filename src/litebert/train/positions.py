"""Positions that a longer stage reads for the first time: a table of embeddings in; the same with copies in their rows out.

Heads that find neighbors by position find none among rows that were never trained. So those start as the trained ones,
repeated (Longformer: Beltagy et al. 2020, §5). What they are worth: docs/decisions/positions.md.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from litebert.recipes import PretrainRecipe


def new_positions(recipe: PretrainRecipe, *, trained: int = 0) -> dict[int, range]:
    """By step: the positions that a stage which begins there reads, and no stage before it did.

    `trained` are those of the checkpoint that a run starts from. The first stage has nothing to copy from, and a sinusoid
    goes on by itself.
    """
    if not recipe.extend_positions or recipe.encoder.position_init == "sinusoidal":
        return {}
    lengths, steps, found = recipe.sequence_length, recipe.total_steps, {}
    for start in lengths.starts(steps):
        length = lengths.at(start, steps)
        if 0 < start < steps and length > trained:
            found[start] = range(trained, length)
        trained = max(trained, length)
    return found


@torch.no_grad()
def repeat_positions(table: Float[Tensor, "positions size"], new: range) -> None:
    """Row p of `new` becomes row p mod the first of them, in place: recorded CUDA graphs know the table by its address.

    What comes out depends on the rows before `new` alone, so doing it twice is doing it once.
    """
    table[new.start : new.stop] = table[torch.arange(new.start, new.stop, device=table.device) % new.start]


def said(new: range) -> str:
    return f"positions {new.start:,} to {new.stop - 1:,} start as copies of the first {new.start:,}"
