"""Labelled texts in, padded batches out: what fine-tuning reads (ALBERT A.3).

Texts of like length share a batch, so that little of it is padding. Where a batch comes from is a pure function of
(seed, epoch, number): nothing is carried.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

POOL = 32
"""Batches whose texts are sorted by length together: enough to leave little padding, few enough to stay mixed."""


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Texts as token ids, with [CLS] and [SEP], and the number of each one's label."""

    token_ids: Sequence[Sequence[int]]
    labels: Int[np.ndarray, " texts"]

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, kw_only=True)
class LabelledBatch:
    """Some of the texts side by side, padded to the longest."""

    token_ids: Int[Tensor, "batch seq"]
    mask: Bool[Tensor, "batch seq"]
    labels: Int[Tensor, " batch"]

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, start: int, stop: int) -> "LabelledBatch":
        return LabelledBatch(token_ids=self.token_ids[start:stop], mask=self.mask[start:stop], labels=self.labels[start:stop])


def collate(texts: Labelled, chosen: Int[np.ndarray, " batch"], pad_id: int) -> LabelledBatch:
    """The chosen texts as one batch."""
    rows = [texts.token_ids[number] for number in chosen]
    width = max(map(len, rows))
    token_ids = torch.tensor([[*row, *[pad_id] * (width - len(row))] for row in rows])
    sizes = torch.tensor([len(row) for row in rows])
    mask = torch.arange(width) < sizes[:, None]
    return LabelledBatch(token_ids=token_ids, mask=mask, labels=torch.from_numpy(texts.labels[chosen]).long())


def epoch_batches(lengths: Int[np.ndarray, " texts"], batch_size: int, *, seed: int, epoch: int) -> list[np.ndarray]:
    """Every text once: shuffled, sorted by length inside pools, cut into batches, and the batches shuffled."""
    draw = np.random.default_rng((seed, epoch))
    order = draw.permutation(len(lengths))
    pools = [order[at : at + POOL * batch_size] for at in range(0, len(order), POOL * batch_size)]
    ranked = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    batches = [ranked[at : at + batch_size] for at in range(0, len(ranked), batch_size)]
    return [batches[number] for number in draw.permutation(len(batches))]
