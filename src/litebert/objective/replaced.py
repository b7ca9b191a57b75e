"""Replaced-token detection (ELECTRA: Clark et al. 2020, §2): a batch with masked tokens in; the
losses of a generator that fills them, and of the encoder that finds what it filled wrongly, out.

The generator predicts the masked tokens. Each is replaced by a sample of its distribution; the
encoder reads the result and tells at every token whether it is the original. A sample that happens
to be the original token counts as original. Samples carry no gradient, so that the detection loss
reaches the generator through tied embeddings alone.

Samples are functions of the logits and of two uniform numbers a masked token, which come with the
batch and are drawn from (seed, epoch, example, position): the same for any number of ranks, in
padded and in packed rows, and after a resume.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.model.positions import Packing
from litebert.objective.masked import Losses, label_sums
from litebert.packing import IGNORED

_BLOCK = 128
"""Tokens of the vocabulary whose probabilities are summed together."""


@dataclass(frozen=True, kw_only=True)
class DetectionLosses(Losses):
    """Of replaced-token detection: `masked` is the generator's."""

    detection: Float[Tensor, ""]
    """Sum of the real tokens' detection losses, in nats."""
    detection_correct: Float[Tensor, ""]
    """How many real tokens were told right, replaced or original."""
    replaced: Float[Tensor, ""]
    """How many were replaced."""
    flagged: Float[Tensor, ""]
    """How many were taken for replaced."""
    flagged_replaced: Float[Tensor, ""]
    """How many of the replaced ones were."""


@torch.no_grad()
def sample(
    logits: Float[Tensor, "rows vocab"], draws: Float[Tensor, "rows 2"]
) -> Int[Tensor, " rows"]:
    """A token of each row's softmax, by two uniform numbers below 1: a block of tokens by the
    first, a token of the block by the second. So the vocabulary is read once, in any dtype, and no
    probabilities are written."""
    rows, size = logits.shape
    missing = -size % _BLOCK
    padded = F.pad(logits, (0, missing), value=float("-inf")) if missing else logits
    blocks = padded.view(rows, -1, _BLOCK)
    largest = logits.amax(1).float()
    sums = (blocks.float() - largest[:, None, None]).exp().sum(2)
    block = _pick(sums, draws[:, 0])
    inside = blocks[torch.arange(rows, device=logits.device), block].float()
    token = block * _BLOCK + _pick((inside - largest[:, None]).exp(), draws[:, 1])
    return token.clamp(max=size - 1)  # logits that are not finite pick anything


def _pick(weights: Float[Tensor, "rows n"], draws: Float[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """The first number whose share of the sum, with those before it, exceeds the draw."""
    sums = weights.cumsum(1)
    return (sums <= draws[:, None] * sums[:, -1:]).sum(1).clamp(max=weights.shape[1] - 1)


def generator_losses(
    generator: Model,
    states: Float[Tensor, "needed hidden"],
    batch: DeviceBatch,
    fused: bool = False,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Int[Tensor, " masked"]]:
    """The sum of the masked tokens' losses, how many were guessed, and a sample for each."""
    inputs = batch.head_inputs
    logits = generator.masked_logits(states[:, None], inputs["masked"])
    loss, correct = label_sums(logits, inputs["masked_labels"], fused)
    return loss, correct, sample(logits.detach(), inputs["draws"])


def replace_tokens(
    batch: DeviceBatch, sampled: Int[Tensor, " masked"]
) -> tuple[DeviceBatch, Bool[Tensor, "batch seq"]]:
    """The batch with samples in place of its masked tokens, every last state needed; and which
    tokens are not the original ones."""
    assert batch.needed is not None, "a batch of pretraining says where its masked tokens are"
    labels, ids = batch.head_inputs["masked_labels"], batch.token_ids.flatten()
    places = batch.needed.places.flatten()[batch.head_inputs["masked"]]
    # labels that only fill the shape stand at a [CLS], which keeps its token
    is_masked, there = labels != IGNORED, ids[places]
    tokens, originals = (
        ids.scatter(0, places, torch.where(is_masked, new, there)).view_as(batch.token_ids)
        for new in (sampled, labels)
    )
    return replace(batch, token_ids=tokens, needed=None), tokens != originals


def is_real(batch: DeviceBatch) -> Bool[Tensor, "batch seq"]:
    """True for a token that is no padding."""
    if batch.mask is None:
        return torch.ones_like(batch.token_ids, dtype=torch.bool)
    if not isinstance(batch.mask, Packing):
        return batch.mask
    end = batch.mask.bounds[len(batch.head_inputs["first"])]
    return torch.arange(batch.token_ids.shape[1], device=end.device)[None] < end


def detection_losses(
    model: Model,
    states: Float[Tensor, "batch seq hidden"],
    replaced: Bool[Tensor, "batch seq"],
    real: Bool[Tensor, "batch seq"],
) -> dict[str, Float[Tensor, ""]]:
    """Over the real tokens, in float32: what DetectionLosses has beyond Losses."""
    logits = model.logits("detect", states).float()
    losses = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
    with torch.no_grad():
        flagged, is_replaced = real & (logits > 0), real & replaced
        counted = {
            "detection_correct": real & (flagged == is_replaced),
            "replaced": is_replaced,
            "flagged": flagged,
            "flagged_replaced": flagged & is_replaced,
        }
        counts = {name: each.sum().float() for name, each in counted.items()}
    return {"detection": torch.where(real, losses, 0.0).sum(), **counts}


def first_states(
    states: Float[Tensor, "batch seq hidden"], batch: DeviceBatch
) -> Float[Tensor, "rows hidden"]:
    """The last state of each row's [CLS], of the states of all tokens."""
    assert batch.needed is not None
    return states.flatten(0, 1)[batch.needed.places.flatten()[batch.head_inputs["first"]]]


def detection_scores(sums: Mapping[str, float], *, num_tokens: float) -> dict[str, float]:
    """From sums over real tokens to scores. The base rate of accuracy is 1 - replaced_fraction."""
    return {
        "detection_loss": sums["detection"] / num_tokens,
        "detection_accuracy": sums["detection_correct"] / num_tokens,
        "detection_precision": sums["flagged_replaced"] / max(sums["flagged"], 1.0),
        "detection_recall": sums["flagged_replaced"] / max(sums["replaced"], 1.0),
        "replaced_fraction": sums["replaced"] / num_tokens,
    }
