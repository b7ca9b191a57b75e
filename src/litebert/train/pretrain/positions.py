"""Positions that a longer stage reads for the first time: a table of embeddings in; the same with
those rows filled out.
 Heads that find neighbors by position find none among rows that were never trained. Trained rows
follow one another nearly as a linear recurrence, each the one before turned a little, and so the
new ones go on with it. Where there are too few to find it they are repeated (Longformer: Beltagy et
al. 2020, §5). What that is worth: docs/decisions/positions.md.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from litebert.recipes import PretrainRecipe

FEWEST = 64
"""Trained rows in which a recurrence can be found."""
EDGE = 4
"""Rows at both ends that are left out: [CLS] stands first, and in full rows [SEP] last, so they are
learned apart."""
SHARE = 5
"""Rows for each direction that is followed: the others are noise."""
RIDGE = 1e-3
"""Added to the squares, in units of the table's own."""
Rows = Float[Tensor, "positions size"]


def new_positions(recipe: PretrainRecipe, *, trained: int = 0) -> dict[int, range]:
    """By step: the positions that a stage which begins there reads, and no stage before it did.

    `trained` are those of the checkpoint that a run starts from. The first stage has nothing to go
    on from, and a sinusoid goes on by itself.
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
def extend_positions(table: Rows, new: range) -> None:
    """Fill the rows `new`, in place: recorded CUDA graphs know the table by its address.

    What comes out depends on the rows before `new` alone, so doing it twice is doing it once.
    """
    trained = table[: new.start].detach().cpu().double()
    rows = (
        continued(trained, len(new))
        if len(trained) >= FEWEST
        else trained[torch.arange(new.start, new.stop) % new.start]
    )
    table[new.start : new.stop] = rows.to(table)


def continued(rows: Rows, count: int) -> Rows:
    """The next `count` rows, by the linear map that best takes a row to the next: its turns alone,
    at the rows' mean size."""
    inner = rows[EDGE:-EDGE]
    center = inner.mean(0)
    _, strengths, directions = torch.linalg.svd(inner - center, full_matrices=False)
    directions = directions[: len(inner) // SHARE]
    path = (inner - center) @ directions.T
    before, after = path[:-1], path[1:]
    ridge = (RIDGE * strengths[0] ** 2 + 1e-12) * torch.eye(len(directions), dtype=rows.dtype)
    step = torch.linalg.solve(before.T @ before + ridge, before.T @ after)
    turns, basis = torch.linalg.eig(step)
    turns = turns / turns.abs().clamp(min=1e-12)
    ahead = torch.arange(EDGE + 1, EDGE + 1 + count)[:, None]
    found = (((path[-1].to(turns.dtype) @ basis) * turns**ahead) @ torch.linalg.inv(basis)).real
    sizes = found.norm(dim=1, keepdim=True).clamp(min=1e-12)
    extended: Tensor = found * (inner - center).norm(dim=1).mean() / sizes @ directions + center
    return extended


def said(new: range) -> str:
    how = "go on as" if new.start >= FEWEST else "start as copies of"
    return f"positions {new.start:,} to {new.stop - 1:,} {how} the first {new.start:,}"
