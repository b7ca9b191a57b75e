"""Tasks by a linear model of frozen vectors: a trained encoder or baseline and task files in; a
score on dev for each task, and that of the majority, as JSON, out.

A text's vector is the mean of its tokens' vectors, or last states; of two texts the vectors, their
distance and their product. So encoders and the vectors of before stand on one footing.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from litebert.errors import ConfigError
from litebert.files import read_json, to_json
from litebert.lab.baselines import VECTOR_FILE, infer_documents
from litebert.lab.causal import causal_layer
from litebert.lab.probes import choose_device
from litebert.lab.results import METHOD
from litebert.model.heads import mean_pooled
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.encode.encode import encode_texts
from litebert.tasks.examples import TextExample, only
from litebert.tasks.predictions import LabelPrediction, NumberPrediction, Prediction
from litebert.tasks.registry import open_task
from litebert.tasks.scores.baselines import majority
from litebert.tasks.scores.linear import LinearProbe, logistic, ridge
from litebert.tasks.scores.score import score
from litebert.tasks.task import Task
from litebert.terminal import write_line
from litebert.text.tokenizer import Tokenizer

_TEXTS, _LENGTH = 256, 128
Embed = Callable[[Sequence[str]], Float[Tensor, "texts size"]]


def open_vectors(run: Path, device: torch.device) -> Embed:
    """What turns texts into vectors by the model of a run."""
    final = run / "final"
    record = run / METHOD
    method = read_json(record)["method"] if record.exists() else "encoder"
    if method in ("encoder", "causal"):
        return _states(final, is_causal=method == "causal", device=device)
    tokenizer = Tokenizer.load(final)
    tables = {name: each.to(device) for name, each in load_file(final / VECTOR_FILE).items()}
    if method == "doc2vec":
        return _in_chunks(
            lambda texts: infer_documents(
                [ids[:_LENGTH] for ids in tokenizer.encode_batch(texts)],
                tables["output"],
                tables["noise"][:, 0],
            ).cpu()
        )
    table = tables["token"]

    def tokens(texts: Sequence[str]) -> Tensor:
        rows = []
        for ids in tokenizer.encode_batch(texts):
            chosen = torch.tensor(ids or [tokenizer.unk_id], device=device)
            rows.append(table[chosen].mean(0))
        return torch.stack(rows).cpu()

    return _in_chunks(tokens)


def _states(checkpoint: Path, *, is_causal: bool, device: torch.device) -> Embed:
    """Means of last states."""
    loaded = Checkpoint.load(checkpoint)
    assert loaded.tokenizer is not None
    model, tokenizer = loaded.model.eval().to(device), loaded.tokenizer
    if is_causal:
        model.encoder.layer = causal_layer
    longest = min(_LENGTH, model.config.encoder.max_positions)

    @torch.inference_mode()
    def embed(texts: Sequence[str]) -> Tensor:
        encoded = encode_texts(tokenizer, texts, max_length=longest)
        rows = [torch.from_numpy(row).long().to(device) for row in encoded]
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).bool()
        states = model.encoder(token_ids=pad_sequence(rows, batch_first=True), mask=mask)
        return mean_pooled(states, mask).float().cpu()

    return _in_chunks(embed)


def _in_chunks(embed: Embed) -> Embed:
    def chunks(texts: Sequence[str]) -> Tensor:
        starts = range(0, len(texts), _TEXTS)
        return torch.cat([embed(texts[start : start + _TEXTS]) for start in starts]).clone()

    return chunks


def score_frozen(task: str, data: Path | str, embed: Embed) -> float:
    """The task's first score on dev of a linear model that learns from train."""
    opened = open_task(task, data, splits=("train", "dev"))
    if opened.task.head not in ("classify", "regress"):
        raise ConfigError(f"{task} is not scored by frozen vectors; take a task of texts or pairs")
    train, dev = (only(opened.splits[name], TextExample) for name in ("train", "dev"))
    rows, dev_rows = _features(train, embed), _features(dev, embed)
    predictions = _predict(opened.task, train, rows, dev_rows)
    return next(iter(score(opened.task, dev, predictions).values()))


def score_majority(task: str, data: Path | str) -> float:
    """The same score of what is most frequent in train."""
    opened = open_task(task, data, splits=("train", "dev"))
    train, dev = opened.splits["train"], opened.splits["dev"]
    scores = score(opened.task, dev, majority(opened.task, train, dev))
    return next(iter(scores.values()))


def _features(examples: Sequence[TextExample], embed: Embed) -> Float[Tensor, "rows features"]:
    first = embed([example.first for example in examples])
    if examples[0].second is None:
        return first
    second = embed([example.second or "" for example in examples])
    return torch.cat([first, second, (first - second).abs(), first * second], 1)


def _predict(
    task: Task, train: Sequence[TextExample], rows: Tensor, dev_rows: Tensor
) -> list[Prediction]:
    if task.head == "regress":
        probe = LinearProbe.fit(rows, ridge([example.number() for example in train]))
        return [NumberPrediction(value=float(row[0])) for row in probe.outputs(dev_rows)]
    targets = [task.labels.index(str(example.truth())) for example in train]
    probe = LinearProbe.fit(rows, logistic(targets, len(task.labels)))
    return [
        LabelPrediction.of(dict(zip(task.labels, row.tolist(), strict=True)))
        for row in probe.outputs(dev_rows).softmax(1)
    ]


def main(args: Sequence[str] | None = None) -> None:
    """python -m litebert.lab.vectors --model RUN --tasks cola=DIR sst2=DIR"""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args(args)
    embed = open_vectors(options.model, choose_device(options.device))
    pairs = [task.partition("=") for task in options.tasks]
    frozen = {task: score_frozen(task, place, embed) for task, _, place in pairs}
    guessed = {task: score_majority(task, place) for task, _, place in pairs}
    write_line(to_json({"scores": frozen, "majority": guessed}))


if __name__ == "__main__":
    main()
