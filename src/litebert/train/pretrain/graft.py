"""Continued pretraining: a checkpoint and a new model in; the new model with the old one's weights
out.
 The same vocabulary keeps every row. A new one keeps the rows of the pieces that both have; the
others start afresh. More positions than before go on as the old ones (train/pretrain/positions.py).
"""

import torch

from litebert.errors import ConfigError
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.text.tokenizer import Tokenizer
from litebert.train.pretrain.positions import extend_positions, said

BY_PIECE = ("encoder.embedding.token.weight", "heads.masked.bias")
"""Parameters with a row for each piece of the vocabulary."""
BY_POSITION = "encoder.embedding.position.weight"
FREE = frozenset(
    {
        "vocab_size",
        "embedding_dropout",
        "attention_dropout",
        "attention_output_dropout",
        "ffn_dropout",
        "init_std",
        "pooler",
    }
    | {"residual_init", "position_init"}
)
"""Settings in which a continued model may differ: the weights that both have mean the same."""


@torch.no_grad()
def graft(model: Model, old: Checkpoint, tokenizer: Tokenizer) -> str:
    """Copy what fits from `old` into `model`; a sentence that says what was kept."""
    now, then = model.config.encoder.to_dict(), old.model.config.encoder.to_dict()
    differing = [
        f"{name}: {then[name]} there, {now[name]} here"
        for name in now
        if name not in FREE
        and now[name] != then[name]
        and not (name == "max_positions" and now[name] > then[name])
    ]
    if differing:
        raise ConfigError(
            "the checkpoint given with --init has another shape: " + "; ".join(differing)
        )
    rows = _common_rows(old, tokenizer)
    weights, fresh = old.model.state_dict(), []
    for name, parameter in model.named_parameters():
        if name not in weights:
            fresh.append(name)
        elif name in BY_PIECE:
            mine, theirs = rows
            parameter[mine] = weights[name][theirs].to(parameter)
        elif name == BY_POSITION:
            parameter[: then["max_positions"]] = weights[name].to(parameter)
        else:
            parameter.copy_(weights[name])
    kept = [f"{len(rows[0]):,} of {tokenizer.vocab_size:,} pieces keep their rows"]
    new = range(then["max_positions"], now["max_positions"])
    if new and {now["position_init"], then["position_init"]} != {
        "sinusoidal"
    }:  # a sinusoid goes on by itself
        extend_positions(model.encoder.embedding.position.weight, new)
        kept.append(said(new))
    parts = sorted({name.split(".")[1] for name in fresh})
    return "; ".join(kept + [f"new: {', '.join(parts)}"] * bool(parts))


def _common_rows(old: Checkpoint, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids of the common pieces in the new vocabulary, and in the old."""
    size = old.model.config.encoder.vocab_size
    if old.tokenizer is None:
        if size != tokenizer.vocab_size:
            raise ConfigError(
                f"the checkpoint given with --init has no tokenizer and {size:,} pieces, the data "
                f"{tokenizer.vocab_size:,}; "
                "put its spiece.model into its folder, so that pieces can be told apart"
            )
        return list(range(size)), list(range(size))
    known = {piece: number for number, piece in enumerate(old.tokenizer.tokens[:size])}
    pairs = [(mine, known[piece]) for mine, piece in enumerate(tokenizer.tokens) if piece in known]
    return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]
