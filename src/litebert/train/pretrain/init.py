"""Weights that pretraining continues from: those of a checkpoint, and position embeddings that a
longer stage is the first to read.

With the same vocabulary every row of the checkpoint is kept. With a new one the rows of tokens that
both have are kept; the others start afresh. Position embeddings that were never trained are
extrapolated from the trained ones, which follow one another nearly as a linear recurrence; where
too few are trained they are repeated (Longformer: Beltagy et al. 2020, §5). What that is worth:
docs/decisions/positions.md.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from litebert.config import DROPOUTS, ModelConfig
from litebert.errors import ConfigError
from litebert.model.model import Model
from litebert.recipes import PretrainRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.text.tokenizer import Tokenizer

FEWEST = 64
"""Trained rows in which a recurrence can be found."""
_EDGE = 4
"""Rows at both ends that are left out: [CLS] stands first, and in full rows [SEP] last, so they are
learned apart."""
_SHARE = 5
"""Rows for each direction that is followed: the others are noise."""
_RIDGE = 1e-3
"""Added to the squares, in units of the table's own."""
_Rows = Float[Tensor, "positions size"]


def new_positions(recipe: PretrainRecipe, *, trained: int = 0) -> dict[int, range]:
    """By step: the positions that a stage which begins there reads, and no stage before it did.

    `trained` are those of the checkpoint that a run starts from. The first stage has nothing to
    extrapolate from; sinusoidal positions need no extrapolation, and rotary ones no embedding.
    """
    if not recipe.extend_positions or recipe.encoder.positions != "learned":
        return {}
    lengths, steps, new = recipe.sequence_length, recipe.total_steps, {}
    for start in lengths.starts(steps):
        length = lengths.at(start, steps)
        if 0 < start < steps and length > trained:
            new[start] = range(trained, length)
        trained = max(trained, length)
    return new


@torch.no_grad()
def extend_positions(table: _Rows, new: range) -> None:
    """Fill the rows `new`, in place: recorded CUDA graphs know the table by its address.

    What comes out depends on the rows before `new` alone, so doing it twice is doing it once.
    """
    trained = table[: new.start].detach().cpu().double()
    rows = (
        _extrapolated(trained, len(new))
        if len(trained) >= FEWEST
        else trained[torch.arange(new.start, new.stop) % new.start]
    )
    table[new.start : new.stop] = rows.to(table)


def position_tables(model: Model) -> list[Tensor]:
    """The position embeddings of a model, and of a generator that has its own."""
    generator, config = model.generator, model.config.generator
    owners = [model.encoder.embedding]
    if generator is not None and config is not None and config.tie == "none":
        owners.append(generator.encoder.embedding)
    return [owner.position.weight for owner in owners if owner.position is not None]


def _extrapolated(rows: _Rows, count: int) -> Float[Tensor, "new size"]:
    """The next `count` rows, by the linear map that best takes a row to the next: its turns alone,
    at the rows' mean size."""
    inner = rows[_EDGE:-_EDGE]
    center = inner.mean(0)
    _, strengths, directions = torch.linalg.svd(inner - center, full_matrices=False)
    directions = directions[: len(inner) // _SHARE]
    path = (inner - center) @ directions.T
    before, after = path[:-1], path[1:]
    ridge = (_RIDGE * strengths[0] ** 2 + 1e-12) * torch.eye(len(directions), dtype=rows.dtype)
    step = torch.linalg.solve(before.T @ before + ridge, before.T @ after)
    turns, basis = torch.linalg.eig(step)
    turns = turns / turns.abs().clamp(min=1e-12)
    distances = torch.arange(_EDGE + 1, _EDGE + 1 + count)[:, None]
    turned = (path[-1].to(turns.dtype) @ basis) * turns**distances
    rows_ahead = (turned @ torch.linalg.inv(basis)).real
    sizes = rows_ahead.norm(dim=1, keepdim=True).clamp(min=1e-12)
    size = (inner - center).norm(dim=1).mean()
    extended: Tensor = rows_ahead * size / sizes @ directions + center
    return extended


def describe_positions(new: range) -> str:
    how = "are extrapolated from" if new.start >= FEWEST else "start as copies of"
    return f"positions {new.start:,} to {new.stop - 1:,} {how} the first {new.start:,}"


_BY_PIECE = ("encoder.embedding.token.weight", "heads.masked.bias")
"""Parameters with a row for each token of the vocabulary, of the model and of its generator."""
_BY_POSITION = "encoder.embedding.position.weight"
_GENERATOR = "generator."
_FREE = frozenset({"vocab_size", "init_std", "pooler", "residual_init", *DROPOUTS})
"""Settings in which a continued model may differ: the weights that both have mean the same."""


@torch.no_grad()
def load_initial_weights(model: Model, old: Checkpoint, tokenizer: Tokenizer) -> str:
    """Copy what fits from `old` into `model`; a sentence about it."""
    now, then = model.config.encoder.to_dict(), old.model.config.encoder.to_dict()
    is_rotary = now["positions"] == "rotary"
    may_differ = _FREE | {
        *(("max_positions",) if is_rotary or now["max_positions"] > then["max_positions"] else ()),
        *(() if then["adapter_rank"] else ("adapter_rank",)),
        *(("positions",) if "rotary" not in (now["positions"], then["positions"]) else ()),
        *(("num_layers",) if _same_owners(model, old.model) else ()),
    }
    differing = [
        f"{name}: {then[name]} there, {now[name]} here"
        for name in now
        if name not in may_differ and now[name] != then[name]
    ]
    if differing:
        raise ConfigError(
            "the checkpoint given with --init has another shape: " + "; ".join(differing)
        )
    rows = _common_rows(old, tokenizer)
    sizes = {now["vocab_size"], then["vocab_size"], len(rows[0])}
    if now["embedding_bands"] and (len(sizes) > 1 or rows[0] != rows[1]):
        raise ConfigError(
            "embedding_bands go by token ids, so the checkpoint given with --init needs the same "
            "vocabulary as the data; it has another"
        )
    has_generator = _same_generator(model.config, old.model.config)
    weights, fresh = old.model.state_dict(), []
    for name, parameter in model.named_parameters():
        kind = name.removeprefix(_GENERATOR)
        if name not in weights or (kind != name and not has_generator):
            fresh.append(name)
        elif kind in _BY_PIECE:
            mine, theirs = rows
            parameter[mine] = weights[name][theirs].to(parameter)
        elif kind == _BY_POSITION:
            parameter[: then["max_positions"]] = weights[name].to(parameter)
        else:
            parameter.copy_(weights[name])
    notes = [f"{len(rows[0]):,} of {tokenizer.vocab_size:,} tokens keep their rows"]
    new = range(then["max_positions"], now["max_positions"])
    # sinusoidal positions need no extrapolation
    if new and not is_rotary and {now["positions"], then["positions"]} != {"sinusoidal"}:
        for table in position_tables(model):
            extend_positions(table, new)
        notes.append(describe_positions(new))
    parts = sorted(
        {"generator" if name.startswith(_GENERATOR) else name.split(".")[1] for name in fresh}
    )
    return "; ".join(notes + [f"new: {', '.join(parts)}"] * bool(parts))


def _same_owners(now: Model, then: Model) -> bool:
    """Whether another number of layers only applies the same parameters more or less often (ALBERT
    Table 11: deeper models start from shallower ones)."""
    encoders = (now.encoder, then.encoder)
    owners = {(len(each.attentions), len(each.feed_forwards)) for each in encoders}
    return len(owners) == 1 and not any(each.adapters for each in encoders)


def _same_generator(now: ModelConfig, then: ModelConfig) -> bool:
    """Whether the weights of the checkpoint's generator fit."""
    if now.generator is None or then.generator is None or now.generator.tie != then.generator.tie:
        return False
    mine, theirs = now.generator.encoder.to_dict(), then.generator.encoder.to_dict()
    return all(mine[name] == theirs[name] for name in mine.keys() - _FREE - {"max_positions"})


def _common_rows(old: Checkpoint, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids of the common tokens in the new vocabulary, and in the old."""
    size = old.model.config.encoder.vocab_size
    if old.tokenizer is None:
        if size != tokenizer.vocab_size:
            raise ConfigError(
                f"the checkpoint given with --init has no tokenizer and {size:,} tokens, the data "
                f"{tokenizer.vocab_size:,}; "
                "put its spiece.model into its folder, so that tokens can be matched"
            )
        return list(range(size)), list(range(size))
    known = {token: number for number, token in enumerate(old.tokenizer.tokens[:size])}
    pairs = [(mine, known[token]) for mine, token in enumerate(tokenizer.tokens) if token in known]
    return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]
