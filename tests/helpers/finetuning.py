"""Fine-tuning in this process, for tests: tiny tasks of every kind, a tiny model; start, end at a
chosen moment, compare."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from litebert.config import ModelConfig, preset
from litebert.model.model import Model
from litebert.recipes import FinetuneRecipe, OptimizerSpec
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.examples import (
    Answer,
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.task import Task, TaskData
from litebert.testing import WORLDS, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from litebert.train.finetune.prepare import Prepared, prepare
from litebert.train.finetune.run import Finetuning
from tests.helpers.pretraining import CPU, essence

HEROES = {world: subjects.split() for world, (subjects, _, _) in WORLDS.items()}
THINGS = {world: things.split(";") for world, (_, _, things) in WORLDS.items()}

TASKS = {
    "classify": Task(
        name="classify",
        kind="classify",
        scores=("accuracy",),
        labels=tuple(sorted(WORLDS)),
        head="classify",
    ),
    "multilabel": Task(
        name="classify",
        kind="classify",
        scores=("micro_f1", "macro_f1"),
        labels=tuple(sorted(WORLDS)),
        head="multilabel",
    ),
    "pair": Task(
        name="pair",
        kind="pair",
        scores=("accuracy", "f1"),
        labels=("other", "same"),
        head="classify",
    ),
    "regress": Task(name="regress", kind="regress", scores=("pearson", "spearman"), head="regress"),
    "choose": Task(name="choose", kind="choose", scores=("accuracy",), head="choose"),
    "answer": Task(
        name="answer", kind="answer", scores=("f1", "exact"), head="joint_span", has_null=True
    ),
    "tag": Task(
        name="tag",
        kind="tag",
        scores=("accuracy", "f1"),
        labels=("O", "B-WHO", "B-WHAT"),
        head="tag",
    ),
}


def example(kind: str, draw: random.Random, key: str) -> TaskExample:
    """One with an answer that its words give away."""
    world, other = draw.sample(sorted(WORLDS), 2)
    hero, thing = draw.choice(HEROES[world]), draw.choice(THINGS[world])
    text = f"the {hero} sees {thing} ."
    if kind == "classify":
        return TextExample(key=key, first=" ".join([text] * draw.randint(1, 3)), label=world)
    if kind == "multilabel":
        worlds = [world, other][: draw.randint(0, 2)]
        words = [draw.choice(THINGS[each]) for each in worlds]
        return TextExample(key=key, first=" ".join(["sees", *words]), label=tuple(sorted(worlds)))
    if kind == "pair":
        same = draw.random() < 0.5
        second = f"{draw.choice(THINGS['sea' if same else 'farm'])} is there ."
        return TextExample(key=key, first=text, second=second, label="same" if same else "other")
    if kind == "regress":
        count = draw.randint(0, 4)
        return TextExample(
            key=key, first=" ".join([hero] * count + ["sees"] * (5 - count)), label=float(count)
        )
    if kind == "choose":
        right = draw.randrange(3)
        options = tuple(draw.choice(HEROES["sea" if i == right else "farm"]) for i in range(3))
        return ChoiceExample(
            key=key,
            context=f"{thing} {thing} .",
            question="who sees _ ?",
            options=options,
            label=right,
        )
    if kind == "answer":
        known = draw.random() < 0.7
        context = (
            f"first {text} then the {draw.choice(HEROES[other])} leaves ."
            if known
            else "then the old barn leaves ."
        )
        answers = (Answer(text=thing, start=context.index(thing)),) if known else ()
        return AnswerExample(
            key=key, question=f"who sees {world} ?", context=context, answers=answers, slice=world
        )
    words = (*(["the"] * draw.randint(1, 3)), hero, "sees", thing.split()[-1])
    tags = ["B-WHO" if word == hero else "B-WHAT" if word == words[-1] else "O" for word in words]
    return TagExample(key=key, words=words, tags=tuple(tags))


def made(kind: str = "classify", *, train: int = 64, dev: int = 40) -> TaskData:
    draw = random.Random(7)
    splits = {
        name: [example(kind, draw, str(n)) for n in range(count)]
        for name, count in (("train", train), ("dev", dev))
    }
    return TaskData(task=TASKS[kind], splits=splits)


@cache
def source() -> Checkpoint:
    """A tiny encoder with random weights, and the tiny corpus's vocabulary."""
    import tempfile

    import torch

    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Tokenizer.load(tiny_tokenizer(Path(folder)))
    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "num_layers": 2,
        "ffn_size": 64,
        "max_positions": 64,
        "init_std": 0.1,
        "norm": "pre",
    }
    encoder = replace(preset("tiny"), vocab_size=tokenizer.vocab_size, **shape)
    return Checkpoint(model=Model(ModelConfig(encoder=encoder)), tokenizer=tokenizer)


def recipe(kind: str = "classify", **changes: Any) -> FinetuneRecipe:
    """A run of a second; settings of the optimizer may be among the changes."""
    spec = {
        name: changes.pop(name)
        for name in ("name", "learning_rate", "warmup", "schedule")
        if name in changes
    }
    base = FinetuneRecipe(
        task=TASKS[kind].name,
        epochs=None if "steps" in changes else 2,
        steps=changes.get("steps"),
        batch_size=8,
        max_length=32,
        microbatch_tokens=96,
        evaluate_tokens=256,
        encoder_dropout=0.1,
        evaluations=3,
        patience=0,
        retries=0,
        save_every=4,
        stride=8,
        optimizer=OptimizerSpec(learning_rate=3e-3, warmup=0.1),
    )
    return replace(base, **changes, optimizer=replace(base.optimizer, **spec))


class WatchedTuning(Finetuning):
    """A fine-tuning that calls `at` before each microbatch and each batch of dev, with the number
    of those before it."""

    def __init__(
        self, *args: Any, at: Callable[[int], None] = lambda number: None, **kwargs: Any
    ) -> None:
        super().__init__(*args, say=lambda message: None, **kwargs)
        self.calls, self.at, losses, predict = 0, at, self.job.losses, self.evaluation.predict

        def watched(*args: Any) -> Any:
            self.tell()
            return losses(*args)

        def watched_predict(pause: Callable[[], None]) -> Any:
            def told() -> None:
                self.tell()
                pause()

            return predict(told)

        self.job.losses = watched  # type: ignore[method-assign]
        self.evaluation.predict = watched_predict  # type: ignore[method-assign]

    def tell(self) -> None:
        self.calls += 1
        self.at(self.calls - 1)


@cache
def ready(kind: str, **changes: Any) -> Prepared:
    tokenizer = source().tokenizer
    assert tokenizer is not None
    return prepare(recipe(kind, **changes), made(kind), tokenizer)


def tune(
    wish: FinetuneRecipe,
    out: Path,
    *,
    kind: str | None = None,
    at: Callable[[int], None] = lambda number: None,
) -> WatchedTuning:
    """Run or resume a task of TASKS; the Finetuning afterwards."""
    prepared = ready(kind or wish.task, null_search=wish.null_search)
    training = WatchedTuning(wish, prepared, source(), CPU, at=at)
    training.result = training.train(out, progress=False)  # type: ignore[attr-defined]
    return training


def assert_same_tuning(one: Path, other: Path) -> None:
    """Weights, predictions, metrics and results are equal bit for bit."""
    mine, theirs = (load_file(run / "final" / "model.safetensors") for run in (one, other))
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []
    assert (one / "final" / "task.json").read_bytes() == (
        other / "final" / "task.json"
    ).read_bytes()
    assert (one / "dev_predictions.jsonl").read_bytes() == (
        other / "dev_predictions.jsonl"
    ).read_bytes()
    assert essence(one) == essence(other)
    results = [json.loads((run / "result.json").read_text()) for run in (one, other)]
    assert results[0] | {"seconds": 0} == results[1] | {"seconds": 0}
