"""Fine-tuning learns every kind of task, keeps what was best on dev, and a run that was ended goes
on bit for bit."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.config import ModelConfig
from litebert.errors import CheckpointError, ConfigError, DataError, InterruptedRunError
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.examples import TextExample
from litebert.tasks.heads.heads import predict
from litebert.tasks.predictions import load_predictions
from litebert.tasks.scores.score import score
from litebert.tasks.task import TaskCard
from litebert.train.finetune import run as conclusion
from litebert.train.finetune.job import FinetuneJob
from litebert.train.finetune.prepare import prepare
from litebert.train.finetune.run import Finetuning
from litebert.train.log import read_records
from litebert.train.loop import BetweenSteps, Event
from litebert.train.runtime import Runtime
from tests.helpers.finetuning import (
    TASKS,
    WatchedTuning,
    assert_same_tuning,
    made,
    ready,
    recipe,
    source,
    tune,
)
from tests.helpers.pretraining import CPU, events, signalled


@pytest.mark.parametrize("kind", TASKS)
def test_every_kind_of_task_is_learned_and_its_best_checkpoint_kept(
    kind: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    training = tune(recipe(kind, epochs=8, learning_rate=5e-3), run, kind=kind)
    result = training.result.details  # type: ignore[attr-defined]
    steps = [
        record["loss"] for record in read_records(run / "metrics.jsonl") if record["kind"] == "step"
    ]
    assert sum(steps[-8:]) < 0.9 * sum(steps[:8])
    noted = [
        record for record in read_records(run / "metrics.jsonl") if record["kind"] == "evaluation"
    ]
    assert len(noted) == 3
    best = max(noted, key=lambda record: record["score"])
    assert (result["score"], result["best_step"]) == (
        pytest.approx(best["score"], abs=1e-6),
        best["step"],
    )
    kept = Checkpoint.load(run / "final")
    assert kept.task is not None
    assert kept.tokenizer is not None
    dev = made(kind).splits["dev"]
    again = predict(kept.model, TaskCard.from_dict(kept.task), dev, kept.tokenizer)
    assert score(TASKS[kind], dev, again)[TASKS[kind].scores[0]] == pytest.approx(
        result["score"], abs=1e-6
    )
    task, examples, predictions = load_predictions(run / "dev_predictions.jsonl")
    assert task == TASKS[kind]
    assert list(examples) == list(dev)
    assert score(task, examples, predictions) == pytest.approx(result["scores"])
    assert json.loads((run / "status.json").read_text())["state"] == "finished"
    assert not (run / "snapshots").exists()
    assert not (run / "best").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """An undisturbed run over two epochs, with dropout, and how many microbatches and batches of
    dev it has."""
    run = tmp_path_factory.mktemp("whole") / "run"
    return run, tune(recipe(), run).calls


@pytest.mark.parametrize("part", [0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.999])
def test_interrupted_anywhere_it_ends_as_if_it_had_not_been(
    whole: tuple[Path, int], tmp_path: Path, part: float
) -> None:
    with pytest.raises(
        InterruptedRunError,
        match=r"interrupted at step \d+ of 16; saved, the same command resumes it",
    ):
        tune(recipe(), tmp_path / "run", at=signalled(int(part * whole[1])))
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"
    tune(recipe(), tmp_path / "run")
    assert_same_tuning(tmp_path / "run", whole[0])


def test_interrupted_again_and_again(whole: tuple[Path, int], tmp_path: Path) -> None:
    sittings, done = 0, False
    while not done:
        sittings += 1
        try:
            tune(recipe(), tmp_path / "run", at=signalled(6))
            done = True
        except InterruptedRunError:
            continue
    assert sittings > 4
    assert_same_tuning(tmp_path / "run", whole[0])


@pytest.mark.parametrize("part", [0.05, 0.5, 0.95])
def test_a_process_that_just_vanishes_loses_only_what_follows_its_last_snapshot(
    whole: tuple[Path, int], tmp_path: Path, part: float
) -> None:
    class Gone(BaseException):
        pass

    def vanish(number: int) -> None:
        if number == int(part * whole[1]):
            raise Gone

    with pytest.raises(Gone):
        tune(recipe(), tmp_path / "run", at=vanish)
    tune(recipe(save_every=3), tmp_path / "run")  # how it is done may change, what is learned not
    assert_same_tuning(tmp_path / "run", whole[0])


@pytest.mark.parametrize("moment", ["predictions", "result", "renamed"])
def test_ended_at_its_very_end_it_ends_again(
    whole: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    where = {
        "predictions": "save_predictions",
        "result": "write_json",
        "renamed": "predict_inputs",
    }[moment]

    def gone(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(conclusion, where, gone)
        with pytest.raises(KeyboardInterrupt):
            tune(recipe(), tmp_path / "run")
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"
    tune(recipe(), tmp_path / "run")
    assert_same_tuning(tmp_path / "run", whole[0])


@pytest.mark.parametrize("step", [6, 16])
def test_ctrl_c_inside_evaluation_is_saved(
    whole: tuple[Path, int], tmp_path: Path, step: int
) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, BetweenSteps) and event.state.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    training = WatchedTuning(recipe(), ready("classify"), source(), CPU)
    training.run.subscribers.insert(0, interrupt)
    with pytest.raises(InterruptedRunError, match=f"interrupted at step {step} of 16; saved"):
        training.train(tmp_path / "run", progress=False)
    tune(recipe(), tmp_path / "run")
    assert_same_tuning(tmp_path / "run", whole[0])


def test_a_finished_run_given_again_answers_at_once(whole: tuple[Path, int]) -> None:
    before = {path.name: path.read_bytes() for path in whole[0].iterdir() if path.is_file()}
    again = tune(recipe(), whole[0])
    assert again.calls == 0
    assert again.result.details == json.loads(before["result.json"])  # type: ignore[attr-defined]
    assert {path.name: path.read_bytes() for path in whole[0].iterdir() if path.is_file()} == before


def test_another_recipe_data_or_model_is_refused_with_the_difference(
    whole: tuple[Path, int], tmp_path: Path
) -> None:
    with pytest.raises(InterruptedRunError):
        tune(recipe(), tmp_path / "run", at=signalled(5))
    with pytest.raises(
        ConfigError,
        match=(
            r"another run.*: optimizer.learning_rate: 0.003 in the run, 0.1 now; seed: 0 .*, 1 "
            r"now"
        ),
    ):
        tune(recipe(learning_rate=0.1, seed=1), tmp_path / "run")
    tokenizer = source().tokenizer
    assert tokenizer is not None
    data = made()
    fewer = prepare(
        recipe(),
        replace(data, splits={**data.splits, "train": data.splits["train"][1:]}),
        tokenizer,
    )
    with pytest.raises(ConfigError, match=r"undo: train: \w{12}… in the run, \w{12}… now$"):
        Finetuning(recipe(), fewer, source(), CPU).train(tmp_path / "run", progress=False)
    torch.manual_seed(1)
    other = replace(source(), model=Model(source().model.config))
    with pytest.raises(ConfigError, match=r"undo: model: \w{12}… in the run, \w{12}… now$"):
        Finetuning(recipe(), ready("classify"), other, CPU).train(tmp_path / "run", progress=False)


def test_a_run_without_gain_ends_early_and_resumes_so(tmp_path: Path) -> None:
    """Perfect at first, then all the same: the first evaluation is the best, and after two more the
    run is over."""

    class Falling(WatchedTuning):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            predict = self.evaluation.predict

            def falling(pause: Callable[[], None]) -> Any:
                card, predictions = predict(pause)
                labels = [example.label for example in self.prepared.dev.examples]
                if self.evaluation.evaluated >= 0:
                    labels = [TASKS["classify"].labels[0]] * len(labels)
                return card, [
                    replace(each, label=label)
                    for each, label in zip(predictions, labels, strict=True)
                ]

            self.evaluation.predict = falling  # type: ignore[method-assign]

    wish = recipe(epochs=6, evaluations=12, patience=2)
    runs = []
    for number, at in enumerate([lambda number: None, signalled(60)]):
        run = tmp_path / str(number)
        training = Falling(wish, ready("classify"), source(), CPU, at=at)
        try:
            training.train(run, progress=False)
        except InterruptedRunError:
            Falling(wish, ready("classify"), source(), CPU).train(run, progress=False)
        runs.append(run)
    result = json.loads((runs[0] / "result.json").read_text())
    assert (result["steps"], result["best_step"], result["ended_early"]) == (12, 4, True)
    (event,) = events(runs[0])
    assert (
        event["message"]
        == "no improvement on dev in 2 evaluations: the run stops here, 36 steps early"
    )
    assert_same_tuning(*runs)


def test_the_threshold_for_no_answer_is_searched_where_it_is_asked_for(tmp_path: Path) -> None:
    """On train: a tenth of its questions, by title, is kept aside; dev then has no part in the
    threshold."""
    ours, theirs = (ready("answer", null_search=where) for where in ("train", "dev"))
    assert ours.threshold_split is not None
    assert theirs.threshold_split is None
    titles = {example.slice for example in ours.threshold_split.examples}
    assert not titles & {example.slice for example in ours.train.examples}
    assert len(ours.train.examples) + len(ours.threshold_split.examples) == len(
        theirs.train.examples
    )
    actual = [
        tune(recipe("answer", epochs=2, null_search=where), tmp_path / where).result.details  # type: ignore[attr-defined]
        for where in ("train", "dev")
    ]
    assert actual[0]["null_threshold"] != actual[1]["null_threshold"]
    for where, result in zip(("train", "dev"), actual, strict=True):
        card = json.loads((tmp_path / where / "final" / "task.json").read_text())
        assert card["null_threshold"] == result["null_threshold"]


def test_a_model_of_another_task_keeps_its_encoder_and_gets_a_new_head(tmp_path: Path) -> None:
    tune(recipe("classify"), tmp_path / "first")
    first = Checkpoint.load(tmp_path / "first" / "final")
    training = Finetuning(recipe("pair"), ready("pair"), first, CPU)
    mine, theirs = training.learner.model.state_dict(), first.model.state_dict()
    assert all(
        torch.equal(mine[name], theirs[name]) for name in mine if name.startswith("encoder.")
    )
    assert mine["heads.classify.output.weight"].shape == (2, 32)
    assert training.learner.model.config.encoder.ffn_dropout == 0.1


def test_random_weights_keep_the_shape_alone() -> None:
    fresh = Finetuning(recipe(random_weights=True), ready("classify"), source(), CPU).learner.model
    name = "encoder.attentions.0.query.weight"
    assert fresh.config.encoder.to_dict() | {"ffn_dropout": 0.0} != {}
    assert not torch.equal(fresh.state_dict()[name], source().model.state_dict()[name])


def test_a_pooler_is_made_where_the_head_needs_one_and_there_is_none() -> None:
    config = replace(source().model.config.encoder, pooler=False)
    bare = replace(source(), model=Model(ModelConfig(encoder=config)))
    training = Finetuning(recipe(), ready("classify"), bare, CPU)
    assert training.learner.model.encoder.pooler is not None
    assert torch.equal(
        training.learner.model.encoder.embedding.token.weight,
        bare.model.encoder.embedding.token.weight,
    )
    assert Finetuning(recipe("tag"), ready("tag"), bare, CPU).learner.model.encoder.pooler is None


def test_a_batch_is_divided_among_ranks_and_a_rank_without_units_counts_for_nothing() -> None:
    inputs = ready("classify").train.inputs
    wish = recipe(batch_size=7)  # 64 = 9 × 7 + 1: one batch has a single unit
    alone = FinetuneJob(wish, inputs, CPU)
    ranks = [
        FinetuneJob(
            wish, inputs, Runtime(rank=rank, world_size=2, device=CPU.device, dtype=CPU.dtype)
        )
        for rank in range(2)
    ]
    model = Finetuning(
        recipe(encoder_dropout=0.0, head_dropout=0.0), ready("classify"), source(), CPU
    ).learner.model
    for step in range(alone.per_epoch):
        full = alone.batch(step)
        counts = alone.counts(full)
        parts = [(job, job.batch(step)) for job in ranks]
        assert sum(job.counts(batch)["targets"] for job, batch in parts) == counts["targets"]
        together = sum(job.losses(model, batch, step).loss.item() for job, batch in parts)
        assert together == pytest.approx(alone.losses(model, full, step).loss.item(), rel=1e-5)
    assert any(len(alone.units(step)) == 1 for step in range(alone.per_epoch))


def test_wrong_inputs_say_what_to_do() -> None:
    tokenizer = source().tokenizer
    assert tokenizer is not None
    data = made()
    with pytest.raises(
        ConfigError,
        match="the recipe is for pair, the data are classify; take the recipe of the task",
    ):
        prepare(recipe("pair"), data, tokenizer)
    with pytest.raises(
        DataError,
        match=r"scored on dev; its files have no train, only: dev; --split-dev 0.2 trains on a",
    ):
        prepare(recipe(), replace(data, splits={"dev": data.splits["dev"]}), tokenizer)
    nameless = replace(
        data, splits={**data.splits, "dev": [TextExample(key="0", first="the goat .")]}
    )
    with pytest.raises(
        DataError,
        match="dev of classify has 1 examples, and not all have an answer; label them all",
    ):
        prepare(recipe(), nameless, tokenizer)
    asked = made("answer")
    one_title = [replace(each, slice="a title") for each in asked.splits["train"]]  # type: ignore[type-var]
    with pytest.raises(
        DataError,
        match=r"a tenth of the 64 training questions aside, by title, and there are too few titles",
    ):
        prepare(
            recipe("answer", null_search="train"),
            replace(asked, splits={**asked.splits, "train": one_title}),
            tokenizer,
        )
    with pytest.raises(
        CheckpointError,
        match=r"has no tokenizer, so it cannot read text; put its spiece.model there",
    ):
        Finetuning(recipe(), ready("classify"), replace(source(), tokenizer=None), CPU)
    longer = recipe(max_length=128, microbatch_tokens=128)
    encoded = prepare(longer, data, tokenizer)
    with pytest.raises(ConfigError, match="the model reads at most 64 tokens"):
        Finetuning(longer, encoded, source(), CPU)
