"""litebert finetune embed: gradients that do not depend on the microbatch, resuming bit for bit,
what is learned, what the checkpoint remembers, and messages."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import litebert
from litebert import cli
from litebert.errors import ConfigError, InterruptedRunError
from litebert.model.model import Model
from litebert.recipes.embed import EmbedRecipe
from litebert.tasks.tables.pairs import EmbedData, open_pairs, open_scored_pairs
from litebert.tasks.tables.units import Units
from litebert.tasks.task import EmbedCard
from litebert.train.finetune.embed_job import EmbedJob
from litebert.train.finetune.embed_run import EmbedTuning
from tests.helpers.finetuning import HEROES, THINGS, source
from tests.helpers.pretraining import CPU, essence

WORLDS = sorted(HEROES)


def rows(count: int = 24) -> list[dict[str, str]]:
    """Heroes and things of one world belong together."""
    pairs = [
        {
            "anchor": f"the {hero} sees {thing} .",
            "positive": f"{other} and the {HEROES[world][0]} .",
            "negative": f"{THINGS[WORLDS[number - 1]][0]} is there .",
        }
        for number, world in enumerate(WORLDS)
        for hero, thing, other in itertools.product(
            HEROES[world][:2], THINGS[world][:3], THINGS[world][:3]
        )
    ]
    return pairs[:: max(len(pairs) // count, 1)][:count]


def scored() -> list[dict[str, Any]]:
    """Other combinations of the same words."""
    return [
        {
            "text_a": f"the {HEROES[a][1]} sees {THINGS[a][i]} .",
            "text_b": f"{THINGS[b][1 - i]} and the {HEROES[b][0]} .",
            "score": float(a == b),
        }
        for a, b in itertools.product(WORLDS[:3], repeat=2)
        for i in (0, 1)
    ]


def recipe(**changes: Any) -> EmbedRecipe:
    base = EmbedRecipe(
        epochs=None,
        steps=6,
        batch_size=8,
        max_length=32,
        microbatch_tokens=96,
        evaluations=3,
        save_every=2,
    )
    return base.changed({"learning_rate": 3e-3} | changes)


def data() -> EmbedData:
    return replace(open_pairs(rows()), dev=open_scored_pairs(scored())[0])


def tune(out: Path, wish: EmbedRecipe | None = None, **changes: Any) -> EmbedTuning:
    tuning = EmbedTuning(
        wish or recipe(), replace(data(), **changes), source(), CPU, say=lambda message: None
    )
    tuning.train(out, progress=False)
    return tuning


def test_files_that_no_run_wrote_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds result\.json and no recipe\.json of a run"):
        tune(tmp_path)
    assert (tmp_path / "result.json").read_text() == "mine"


def of_relation(relation: str) -> Units:
    draw = np.random.default_rng(3)
    if relation == "contrast":
        return open_pairs(
            [row if n % 2 else row | {"negative": ""} for n, row in enumerate(rows())]
        ).train
    if relation == "score":
        return open_pairs(scored()).train
    texts = [row["anchor"] for row in rows()]
    return Units(
        relation="teacher",
        texts=texts,
        numbers=np.arange(len(texts)),
        bounds=np.arange(len(texts) + 1),
        vectors=draw.normal(size=(len(texts), 32)).astype(np.float32),
    )


def gradients(units: Units, microbatch: int, **changes: Any) -> tuple[float, list[torch.Tensor]]:
    """Of the first batch, in float64."""
    wish = recipe(encoder_dropout=0.0, matryoshka=(8,), **changes)
    tokenizer = source().tokenizer
    assert tokenizer is not None
    model = Model(source().model.config)
    model.load_state_dict(source().model.state_dict())
    model.double()
    job = EmbedJob(wish, units, tokenizer, CPU)
    batch = job.batch(0)
    shown = 0.0
    for start in range(0, len(batch), microbatch):
        sums = job.losses(model, batch.rows(start, start + microbatch), 0)
        job.mean(sums, job.counts(batch)).backward()  # type: ignore[no-untyped-call]
        shown += sums.shown.item()
    return shown, [each.grad for each in model.parameters() if each.grad is not None]


@pytest.mark.parametrize(
    ("relation", "changes"),
    [
        ("contrast", {}),
        ("contrast", {"symmetric": True, "pooling": "cls", "temperature": 0.2}),
        ("score", {}),
        ("teacher", {}),
    ],
)
def test_gradients_are_those_of_the_whole_batch(relation: str, changes: dict[str, Any]) -> None:
    units = of_relation(relation)
    loss, expected = gradients(units, 8, **changes)
    assert loss > 0
    for microbatch in (1, 3):
        again, found = gradients(units, microbatch, **changes)
        assert again == pytest.approx(loss, rel=1e-12)
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_a_run_that_was_interrupted_equals_one_that_was_not(tmp_path: Path) -> None:
    tune(tmp_path / "one")
    for step in (0, 3, 5):
        tuning = EmbedTuning(recipe(), data(), source(), CPU, say=lambda message: None)
        losses, calls = tuning.job.losses, itertools.count()

        def interrupted(model: Model, microbatch: Any, at: int, *, step: int = step) -> Any:
            if at == step and next(calls) == 1:  # noqa: B023
                raise KeyboardInterrupt
            return losses(model, microbatch, at)  # noqa: B023

        tuning.job.losses = interrupted  # type: ignore[method-assign]
        with pytest.raises((KeyboardInterrupt, InterruptedRunError)):
            tuning.train(tmp_path / "other", progress=False)
    tune(tmp_path / "other")
    mine, theirs = (
        load_file(tmp_path / name / "final" / "model.safetensors") for name in ("one", "other")
    )
    assert all(torch.equal(mine[name], theirs[name]) for name in mine | theirs)
    assert essence(tmp_path / "one") == essence(tmp_path / "other")
    results = [
        json.loads((tmp_path / name / "result.json").read_text()) | {"seconds": 0}
        for name in ("one", "other")
    ]
    assert results[0] == results[1]


def test_it_learns(tmp_path: Path) -> None:
    tuning = tune(tmp_path / "run", recipe(steps=40, encoder_dropout=0.0, learning_rate=1e-2))
    before = EmbedTuning(recipe(), data(), source(), CPU, say=lambda message: None).scores()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["score"] == result["scores"]["spearman"] > max(before["spearman"], 0.7)
    losses = [
        record["loss"]
        for record in map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
        if record["kind"] == "step"
    ]
    assert losses[-1] < losses[0] / 2
    assert tuning.run.folder.final.is_dir()


def test_a_batch_that_is_not_a_number_is_skipped(tmp_path: Path) -> None:
    tuning = EmbedTuning(recipe(), data(), source(), CPU, say=lambda message: None)
    losses = tuning.job.losses

    def broken(model: Model, microbatch: Any, step: int) -> Any:
        sums = losses(model, microbatch, step)
        return replace(sums, loss=sums.loss * float("nan")) if step == 2 else sums

    tuning.job.losses = broken  # type: ignore[method-assign]
    tuning.train(tmp_path / "run", progress=False)
    records = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [each["step"] for each in records if each.get("event") == "skip"] == [2]


def test_without_dev_the_last_weights_are_the_result(tmp_path: Path) -> None:
    tuning = tune(tmp_path / "run", dev=None)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["score"], result["scores"], result["best_step"]) == (None, {}, 6)
    final = load_file(tmp_path / "run" / "final" / "model.safetensors")
    last = tuning.learner.model.state_dict()
    assert all(torch.equal(tensor, last[name]) for name, tensor in final.items())


def test_embed_does_as_the_model_was_trained(tmp_path: Path) -> None:
    tune(tmp_path / "run", recipe(pooling="cls", matryoshka=(8, 16), steps=2))
    model = litebert.load(tmp_path / "run", device="cpu")
    assert model.embed_card == EmbedCard(pooling="cls", normalize=True, dimensions=(8, 16))
    assert model.verbs == ("embed",)
    text = "the fisher sees the boat ."
    vector, plain = model.embed(text), model.embed(text, pooling="cls", normalize=False)
    np.testing.assert_allclose(vector, plain / np.linalg.norm(plain), rtol=1e-5)
    short = model.embed([text], dimensions=8)
    assert short.shape == (1, 8)
    np.testing.assert_allclose(short[0], plain[:8] / np.linalg.norm(plain[:8]), rtol=1e-5)
    raw = model.embed(text, normalize=False, dimensions=16)
    np.testing.assert_array_equal(raw, plain[:16])
    assert model.embed([], dimensions=16).shape == (0, 16)
    with pytest.raises(ConfigError, match="not trained for vectors of 12; it has: 8, 16, 32"):
        model.embed(text, dimensions=12)
    assert model.embed(text, pooling="mean").shape == (32,)


def test_the_command_and_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = source().save(tmp_path / "model")
    table, dev = tmp_path / "pairs.jsonl", tmp_path / "dev.csv"
    table.write_text("\n".join(map(json.dumps, rows())))
    lines = [f"{row['text_a']},{row['text_b']},{row['score']}" for row in scored()]
    dev.write_text("\n".join(["text_a,text_b,score", *lines]))
    out = str(tmp_path / "run")
    command = ["finetune", "embed", "--model", str(model), "--data", str(table), "--out", out]
    flags = ["--max-length", "32", "--batch-size", "8", "--device", "cpu", "--dev", str(dev)]
    assert cli.run([*command, *flags, "--matryoshka", "8,16", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["task"] == "embed"
    assert result["dev_examples"] == len(lines)
    assert cli.run(["report", out, "--out", str(tmp_path / "report.html")]) == 0
    assert "spearman" in (tmp_path / "report.html").read_text()
    texts = tmp_path / "texts.txt"
    texts.write_text("the fisher sees .\n")
    written = tmp_path / "vectors.jsonl"
    predict = ["predict", "--model", out, str(texts), "--out", str(written), "--device", "cpu"]
    assert cli.run([*predict, "--dimensions", "8"]) == 0
    vector = json.loads(written.read_text())["vector"]
    assert len(vector) == 8
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-3)
    assert cli.run(["embed", "--model", out, "--dimensions", "9", "the fisher"]) == 2
    assert "not trained for vectors of 9" in capsys.readouterr().err


def test_from_python_with_a_teacher(tmp_path: Path) -> None:
    model = source().save(tmp_path / "model")
    texts = [row["anchor"] for row in rows()]
    teacher = np.random.default_rng(0).normal(size=(len(texts), 12)).astype(np.float16)
    np.save(tmp_path / "vectors.npy", teacher)
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    run = litebert.finetune(
        "embed",
        model=model,
        data=None,
        out=tmp_path / "run",
        teacher=tmp_path / "vectors.npy",
        texts=tmp_path / "texts.txt",
        dev=scored(),
        steps=3,
        batch_size=8,
        max_length=32,
        device="cpu",
        progress=False,
    )
    assert run.scores.keys() == {"spearman", "pearson"}
    assert run.load(device="cpu").embed_card == EmbedCard()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "learns from --data, or from --teacher"),
        ({"teacher": "x.npy"}, "needs --teacher VECTORS.npy and --texts"),
        ({"matryoshka": (999,)}, "vectors of this model have 32 numbers"),
        ({"max_length": 100, "microbatch_tokens": 200}, "the model reads at most 64 tokens"),
        ({"data": [{"text": "a"}], "encoder_dropout": 0.0}, "encoder_dropout is 0"),
        ({"seeds": 2}, "embed has one run"),
        ({"temperature": 0}, "temperature is a number from"),
        ({"no_such": 1}, "there is no setting 'no_such'"),
    ],
)
def test_what_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    model = source().save(tmp_path / "model")
    arguments: dict[str, Any] = {"data": rows(), "max_length": 32, "device": "cpu"} | changes
    with pytest.raises(ConfigError, match=message):
        litebert.finetune("embed", model=model, out=tmp_path / "run", progress=False, **arguments)


def test_another_run_is_not_resumed(tmp_path: Path) -> None:
    tune(tmp_path / "run", recipe(steps=1))
    with pytest.raises(ConfigError, match=r"temperature: 0\.05 in the run, 0\.1 now"):
        tune(tmp_path / "run", recipe(steps=1, temperature=0.1))


def test_many_unknown_tokens_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = source().save(tmp_path / "model")
    for name, more in (("known", ""), ("unknown", " ☃☃ ☂☂")):
        table = tmp_path / f"{name}.jsonl"
        told = [row | {"anchor": row["anchor"] + more} for row in rows()]
        table.write_text("\n".join(map(json.dumps, told)))
        command = ["finetune", "embed", "--model", str(model), "--data", str(table), "--out"]
        flags = ["--max-length", "32", "--batch-size", "8", "--device", "cpu", "--steps", "1"]
        assert cli.run([*command, str(tmp_path / f"run-{name}"), *flags]) == 0
        noted = "of the tokens in a sample of the data are unknown" in capsys.readouterr().err
        assert noted == (name == "unknown")
