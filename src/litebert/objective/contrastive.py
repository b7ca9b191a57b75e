"""Losses of text vectors: vectors of a batch in; a number out.

Contrastive learning by in-batch negatives (InfoNCE: van den Oord et al. 2018; SimCSE: Gao et al.
2021), regression of cosines, and distillation from a teacher's vectors. All compare by cosine.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

Vectors = Float[Tensor, "texts size"]


def contrastive_loss(
    vectors: Vectors,
    texts: Int[Tensor, " texts"],
    anchors: Int[Tensor, " units"],
    *,
    temperature: float,
    symmetric: bool = False,
) -> Float[Tensor, ""]:
    """Mean cross-entropy of each anchor's own positive among all positives and hard negatives of
    the batch.

    `anchors` are the rows of the anchors; a positive follows each, then its hard negatives, up to
    the next anchor. `texts` numbers the texts: equal ones have equal numbers. A candidate is no
    negative where its text equals the anchor's or its positive's, or where it is a positive of an
    equal anchor.
    """
    units = F.normalize(vectors, dim=-1)
    positives = anchors + 1
    is_hard = torch.ones(len(texts), dtype=torch.bool, device=texts.device)
    is_hard[anchors] = is_hard[positives] = False
    candidates = torch.cat([positives, is_hard.nonzero()[:, 0]])
    anchor, positive, candidate = texts[anchors], texts[positives], texts[candidates]
    excluded = _among(candidate, anchor, positive)
    excluded[:, : len(anchors)] |= anchor[:, None] == anchor
    loss = _choose(units[anchors], units[candidates], excluded, temperature)
    if not symmetric:
        return loss
    excluded = _among(anchor, anchor, positive) | (positive[:, None] == positive)
    return (loss + _choose(units[positives], units[anchors], excluded, temperature)) / 2


def cosine_loss(vectors: Vectors, targets: Float[Tensor, " pairs"]) -> Float[Tensor, ""]:
    """Mean squared difference of the cosines of pairs, two rows each, to their targets."""
    cosines = F.cosine_similarity(vectors[0::2], vectors[1::2])
    return F.mse_loss(cosines, targets.to(cosines.dtype))


def distillation_loss(
    vectors: Vectors, teacher: Float[Tensor, "texts teacher_size"]
) -> Float[Tensor, ""]:
    """Where both have the same width, the mean of 1 − cosine of each text's two vectors (half the
    squared distance of normalized vectors). Otherwise the mean squared difference of the two
    matrices of cosines between the texts, which needs no map from one width to the other."""
    ours, theirs = F.normalize(vectors, dim=-1), F.normalize(teacher.to(vectors.dtype), dim=-1)
    if ours.shape == theirs.shape:
        return (1 - (ours * theirs).sum(-1)).mean()
    return F.mse_loss(ours @ ours.T, theirs @ theirs.T)


def matryoshka_loss(
    loss: Callable[[Tensor], Tensor], vectors: Vectors, sizes: Sequence[int]
) -> Float[Tensor, ""]:
    """The sum of a loss over the first so many numbers of each vector, and over all of them
    (Kusupati et al. 2022)."""
    total = loss(vectors)
    for size in sorted({*sizes} - {vectors.shape[1]}):
        total = total + loss(vectors[:, :size])
    return total


def _among(
    candidate: Int[Tensor, " candidates"],
    anchor: Int[Tensor, " units"],
    positive: Int[Tensor, " units"],
) -> Bool[Tensor, "units candidates"]:
    """Where a candidate's text is that of a unit's anchor or positive."""
    return (candidate == anchor[:, None]) | (candidate == positive[:, None])


def _choose(
    queries: Float[Tensor, "units size"],
    candidates: Float[Tensor, "candidates size"],
    excluded: Bool[Tensor, "units candidates"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of candidate i for query i, without the excluded others."""
    right = torch.arange(len(queries), device=queries.device)
    excluded = excluded.clone()
    excluded[right, right] = False
    logits = (queries @ candidates.T / temperature).masked_fill(excluded, float("-inf"))
    return F.cross_entropy(logits, right)
