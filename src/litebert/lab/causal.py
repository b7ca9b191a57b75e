"""A causal language model of the encoder's shape: the same modules, where a token attends to those
before it alone and predicts the next one. Tokens in; a checkpoint and its accuracy out.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from litebert.config import HeadConfig, ModelConfig
from litebert.model.layers import Adapters, Attention, Chosen, FeedForward, States, linear, residual
from litebert.model.model import Model
from litebert.model.positions import KeyMask, Needed, Packing, Rotation
from litebert.optim.groups import make_optimizer, set_learning_rate
from litebert.optim.schedule import learning_rate_at
from litebert.recipes import PretrainRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.text.tokenizer import Tokenizer

_MICROBATCH_TOKENS = 8_192
_HELDOUT_TOKENS = 500_000
"""Scored on, at most."""


def causal_layer(
    attention: Attention,
    feed_forward: FeedForward,
    states: States,
    mask: KeyMask | Packing | None,
    needed: Needed | None = None,
    rotate: Rotation | None = None,
    adapters: Adapters | None = None,
) -> Chosen:
    """`apply_layer` where each token attends to itself and to those before it. Rows are padded at
    their end, so that no real token sees a padded one."""

    def attend(x: Tensor) -> Tensor:
        query, key, value = (
            attention.heads(linear(attention, adapters, name, x))
            for name in ("query", "key", "value")
        )
        if rotate is not None:
            query, key = rotate.apply(query), rotate.apply(key)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        values = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return linear(attention, adapters, "output", values.transpose(1, 2).flatten(2))

    after: Tensor = feed_forward(residual(attention, states, None, attend), adapters)
    return after


def next_token_loss(model: Model, rows: Int[Tensor, "rows seq"]) -> Tensor:
    """Sum over the rows of the loss of each token but the first."""
    states = model.encoder(token_ids=rows)[:, :-1]
    logits = model.masked_logits(states).float()
    return F.cross_entropy(logits, rows[:, 1:].flatten(), reduction="sum")


def train_causal(
    recipe: PretrainRecipe,
    tokens: Int[Tensor, " tokens"],
    tokenizer: Tokenizer,
    device: torch.device,
) -> Checkpoint:
    """Train over as many tokens as the recipe reads, with its optimizer and schedule, on rows that
    begin anywhere in the text."""
    torch.manual_seed(recipe.seed)
    encoder = replace(recipe.encoder, vocab_size=tokenizer.vocab_size)
    model = Model(ModelConfig(encoder=encoder, heads=(HeadConfig(kind="masked"),))).to(device)
    model.encoder.layer = causal_layer
    named = [(name, each) for name, each in model.named_parameters() if ".pooler." not in name]
    optimizer = make_optimizer(named, recipe.optimizer)
    draw = torch.Generator(device).manual_seed(recipe.seed)
    steps = recipe.total_steps
    for step in range(steps):
        length = recipe.sequence_length.at(step, steps)
        starts = torch.randint(
            max(len(tokens) - length, 1),
            (recipe.batch_size.at(step, steps),),
            generator=draw,
            device=device,
        )
        rows = tokens[starts[:, None] + torch.arange(length, device=device)].long()
        optimizer.zero_grad(set_to_none=True)
        for part in torch.split(rows, max(_MICROBATCH_TOKENS // length, 1)):
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = next_token_loss(model, part)
            (loss / (len(rows) * (length - 1))).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_([each for _, each in named], 1.0)
        set_learning_rate(optimizer, learning_rate_at(recipe.optimizer, step, steps))
        optimizer.step()
    return Checkpoint(model=model.eval(), tokenizer=tokenizer)


@torch.inference_mode()
def next_token_accuracy(model: Model, tokens: Int[Tensor, " tokens"], length: int) -> float | None:
    """Share of the tokens of held-out rows that the tokens before them predict; None where there
    is no row."""
    count = min(len(tokens), _HELDOUT_TOKENS) // length
    right = 0
    for part in torch.split(
        tokens[: count * length].view(count, length).long(), max(_MICROBATCH_TOKENS // length, 1)
    ):
        states = model.encoder(token_ids=part)[:, :-1]
        guesses = model.masked_logits(states).argmax(-1)
        right += int((guesses == part[:, 1:].flatten()).sum())
    return right / (count * (length - 1)) if count else None
