"""What was there before masked encoders, trained on as many tokens of the same text: word2vec,
doc2vec, GloVe-like vectors, and a causal language model of the encoder's shape. A recipe and shards
in; a folder of vectors or weights out.

Written here, small, in torch; over the tokens of the vocabulary instead of words. word2vec is
skip-gram with negative sampling (Mikolov et al. 2013), doc2vec its distributed bag of words (Le &
Mikolov 2014), GloVe a weighted factorization of log counts (Pennington et al. 2014). Of the paper's
related work CoVe, ELMo and XLNet are left out: a translation model, a bidirectional LSTM and
permutations would be programs of their own.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from litebert.data.plan import is_heldout
from litebert.data.shards import Shards
from litebert.errors import ConfigError
from litebert.files import read_json, write_json
from litebert.lab.causal import next_token_accuracy, train_causal
from litebert.lab.probes import choose_device
from litebert.lab.results import METHOD
from litebert.recipes import PretrainRecipe
from litebert.terminal import write_line

VECTOR_FILE = "vectors.safetensors"
_WINDOW, _CONTEXTS, _NEGATIVES = 5, 4, 5
_BATCH, _LEARNING_RATE = 8_192, 1e-2
_FREQUENT = 1e-4
"""Share of the tokens above which a token counts less (the subsampling of word2vec)."""
_GLOVE_MOST, _GLOVE_POWER = 100.0, 0.75
_GLOVE_STEPS, _GLOVE_ROWS = 30, 512
_GLOVE_BYTES = 8 * 2**30
_INFER_STEPS = 50
_Table = Float[Tensor, "_rows size"]
_Tokens = Int[Tensor, " tokens"]


class Corpus:
    """The tokens of all shards to learn from, the document of each, and the tokens held out."""

    def __init__(self, data: Path, device: torch.device, heldout_fraction: float = 0.0) -> None:
        shards = Shards.open(data)
        self.tokenizer = shards.tokenizer()
        self.size, self.device = self.tokenizer.vocab_size, device
        tokens, documents, first = [], [], 0
        for number in range(len(shards)):
            shard = shards.arrays(number)
            starts = np.asarray(shard.sentences)[np.asarray(shard.documents).astype(np.int64)]
            lengths: np.ndarray = np.diff(starts.astype(np.int64)).astype(np.int64)
            tokens.append(np.asarray(shard.tokens).astype(np.int32))
            documents.append(np.repeat(np.arange(first, first + len(lengths)), lengths))
            first += len(lengths)
        every, owners = np.concatenate(tokens), np.concatenate(documents).astype(np.int32)
        is_kept_aside = is_heldout(np.arange(first), heldout_fraction)[owners]
        self.tokens: _Tokens = torch.from_numpy(every[~is_kept_aside]).to(device)
        self.documents: _Tokens = torch.from_numpy(owners[~is_kept_aside]).to(device)
        self.heldout: _Tokens = torch.from_numpy(every[is_kept_aside]).to(device)
        self.num_documents = first
        counts = torch.bincount(self.tokens, minlength=self.size).float()
        self.noise = counts**0.75 / (counts**0.75).sum()
        shares = counts / counts.sum()
        self.weights = (_FREQUENT / shares.clamp(min=1e-12)).sqrt().clamp(max=1.0)
        """How much a token counts."""


def _word2vec(recipe: PretrainRecipe, corpus: Corpus) -> dict[str, _Table]:
    """A vector of each token that tells the tokens around it from others."""

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        center = _draw(len(corpus.tokens), (_BATCH, 1), generator)
        offset = _draw(_WINDOW, (_BATCH, _CONTEXTS), generator) + 1
        sign = 2 * _draw(2, (_BATCH, _CONTEXTS), generator) - 1
        there = (center + offset * sign).clamp(0, len(corpus.tokens) - 1)
        near, here = corpus.tokens[there].long(), corpus.tokens[center].long()
        same = corpus.documents[there] == corpus.documents[center]
        return here[:, 0], near, same * corpus.weights[near] * corpus.weights[here]

    vectors, _ = _train(recipe, corpus, corpus.size, batch)
    return {"token": vectors}


def _doc2vec(recipe: PretrainRecipe, corpus: Corpus) -> dict[str, _Table]:
    """A vector of each document that tells its tokens from others; new texts get theirs by
    `infer_documents`."""

    def batch(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        first = _draw(len(corpus.tokens), (_BATCH, 1), generator)
        there = (first + _draw(64, (_BATCH, _CONTEXTS), generator)).clamp(
            max=len(corpus.tokens) - 1
        )
        near, owner = corpus.tokens[there].long(), corpus.documents[first].long()
        same = corpus.documents[there] == corpus.documents[first]
        return owner[:, 0], near, same * corpus.weights[near]

    _, outputs = _train(recipe, corpus, corpus.num_documents, batch)
    return {"output": outputs, "noise": corpus.noise[:, None]}


def glove(recipe: PretrainRecipe, corpus: Corpus) -> dict[str, _Table]:
    """Vectors whose products are the logarithms of how often tokens stand near each other, counted
    once over as many tokens as the recipe reads."""
    size, width = corpus.size, recipe.encoder.hidden_size
    if 4 * size**2 > _GLOVE_BYTES:
        raise ConfigError(
            f"counts of {size:,} × {size:,} tokens do not fit; build the shards with at most "
            f"{int((_GLOVE_BYTES / 4) ** 0.5):,} tokens"
        )
    counts = torch.zeros(size * size, device=corpus.device)
    read = recipe.tokens_in(recipe.total_steps)
    tokens, documents = corpus.tokens[:read], corpus.documents[:read]
    for offset in range(1, _WINDOW + 1):
        left, right = tokens[:-offset].long(), tokens[offset:].long()
        same = (documents[:-offset] == documents[offset:]).float() / offset
        counts.index_add_(0, left * size + right, same)
        counts.index_add_(0, right * size + left, same)
    counts = counts.view(size, size)
    generator = torch.Generator(corpus.device).manual_seed(recipe.seed)
    tables = [_table(size, width, generator) for _ in range(2)]
    biases = [torch.zeros(size, device=corpus.device, requires_grad=True) for _ in range(2)]
    optimizer = torch.optim.Adagrad([*tables, *biases], lr=0.05)
    for _ in range(_GLOVE_STEPS):
        shuffled = torch.randperm(size, generator=generator, device=corpus.device)
        for rows in torch.split(shuffled, _GLOVE_ROWS):
            seen = counts[rows]
            weight = (seen / _GLOVE_MOST).clamp(max=1.0) ** _GLOVE_POWER * (seen > 0)
            guess = tables[0][rows] @ tables[1].T + biases[0][rows, None] + biases[1]
            error = guess - seen.clamp(min=1e-6).log()
            optimizer.zero_grad()
            (weight * error**2).sum().div(len(rows)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return {"token": (tables[0] + tables[1]).detach()}


def infer_documents(
    texts: Sequence[Sequence[int]], outputs: _Table, noise: Float[Tensor, " vocab"]
) -> _Table:
    """The vectors of new texts: those that best tell their tokens from others."""
    device, generator = outputs.device, torch.Generator(outputs.device).manual_seed(0)
    rows = [torch.tensor(list(text), dtype=torch.int64, device=device) for text in texts]
    ids = pad_sequence(rows, batch_first=True)
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    vectors = torch.zeros((len(texts), outputs.shape[1]), device=device, requires_grad=True)
    optimizer = torch.optim.Adam([vectors], lr=0.05)
    for _ in range(_INFER_STEPS):
        strange = torch.multinomial(noise, _NEGATIVES * 8, replacement=True, generator=generator)
        near = torch.einsum("rh,rlh->rl", vectors, outputs[ids])
        loss = -(F.logsigmoid(near) * mask).sum(1) / mask.sum(1).clamp(min=1)
        loss = loss - F.logsigmoid(-(vectors @ outputs[strange].T)).mean(1) * _NEGATIVES
        optimizer.zero_grad()
        (loss + 1e-3 * (vectors**2).sum(1)).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return vectors.detach()


def _train(
    recipe: PretrainRecipe,
    corpus: Corpus,
    rows: int,
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor, Tensor]],
) -> tuple[_Table, _Table]:
    """Negative sampling: a table for what predicts and one for the predicted tokens, over as many
    predicting tokens as the recipe reads."""
    generator = torch.Generator(corpus.device).manual_seed(recipe.seed)
    inputs = _table(rows, recipe.encoder.hidden_size, generator)
    outputs = torch.zeros((corpus.size, recipe.encoder.hidden_size), device=corpus.device)
    outputs.requires_grad_()
    optimizer = torch.optim.Adam([inputs, outputs], lr=_LEARNING_RATE)
    steps = max(recipe.tokens_in(recipe.total_steps) // _BATCH, 1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * (1 - step / steps)
        own, near, weight = batch(generator)
        strange = torch.multinomial(
            corpus.noise, _BATCH * _NEGATIVES, replacement=True, generator=generator
        ).view(_BATCH, _NEGATIVES)
        vectors = inputs[own][:, None]
        gain = F.logsigmoid((vectors * outputs[near]).sum(-1)) * weight
        apart = F.logsigmoid(-(vectors * outputs[strange]).sum(-1)) * weight.mean(1, keepdim=True)
        optimizer.zero_grad()
        loss = -(gain.sum() + _CONTEXTS * apart.sum()) / weight.sum().clamp(min=1e-6)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return inputs.detach(), outputs.detach()


def _table(rows: int, width: int, generator: torch.Generator) -> Tensor:
    table = torch.rand((rows, width), generator=generator, device=generator.device) - 0.5
    return (table / width).requires_grad_()


def _draw(high: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(high, shape, generator=generator, device=generator.device)


_METHODS: dict[str, Callable[[PretrainRecipe, Corpus], dict[str, _Table]]] = {
    "word2vec": _word2vec,
    "doc2vec": _doc2vec,
    "glove": glove,
}


def _train_baseline(
    method: str, recipe: PretrainRecipe, data: Path, out: Path, device: torch.device
) -> None:
    """Train a method and save it as OUT/final, its tokenizer beside it."""
    corpus, final = Corpus(data, device, recipe.heldout_fraction), out / "final"
    record: dict[str, Any] = {"method": method, "tokens": recipe.tokens_in(recipe.total_steps)}
    if method == "causal":
        checkpoint = train_causal(recipe, corpus.tokens, corpus.tokenizer, device)
        length = recipe.sequence_length.values[-1]
        accuracy = next_token_accuracy(checkpoint.model, corpus.heldout, length)
        record["next_token_accuracy"] = accuracy
        checkpoint.model.cpu()
        checkpoint.save(final)
    else:
        tables = _METHODS[method](recipe, corpus)
        record["parameters"] = sum(table.numel() for table in tables.values())
        corpus.tokenizer.save(final, for_huggingface=False)
        save_file(
            {name: table.cpu().contiguous() for name, table in tables.items()}, final / VECTOR_FILE
        )
    write_json(out / METHOD, record)


def main(args: Sequence[str] | None = None) -> None:
    """python -m litebert.lab.baselines --method word2vec --recipe FILE --data SHARDS --out RUN"""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--method", choices=[*_METHODS, "causal"], required=True)
    parser.add_argument("--recipe", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args(args)
    if (options.out / METHOD).exists():
        write_line(f"{options.out} is trained already")
        return
    recipe = PretrainRecipe.from_dict(read_json(options.recipe))
    device = choose_device(options.device)
    _train_baseline(options.method, recipe, options.data, options.out, device)


if __name__ == "__main__":
    main()
