"""litebert.load: every kind of folder gives the same model; what cannot be used says why."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import litebert
from litebert.convert.folder import convert_folder
from litebert.errors import CheckpointError, ConfigError
from litebert.infer.predictor import load
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import Task, TaskCard
from tests.helpers.models import LABELS, save_model, texts

SENTIMENT = Task(name="sst2", kind="classify", scores=("accuracy",), labels=LABELS, head="classify")


def test_the_page_has_load_and_predictor(pretrained: Path) -> None:
    model = litebert.load(str(pretrained))
    assert isinstance(model, litebert.Predictor)
    assert model.verbs == ("fill", "embed")


def test_a_run_is_asked_by_its_final_checkpoint_or_its_best(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text("{}")
    with pytest.raises(
        CheckpointError,
        match="has no checkpoint yet, neither final nor best; wait until it has one",
    ):
        load(run)
    best = save_model(run / "best", "masked", seed=1)
    assert load(run).fingerprint == load(best).fingerprint
    final = save_model(run / "final", "masked", seed=2)
    assert load(run).fingerprint == load(final).fingerprint != load(best).fingerprint


@pytest.mark.parametrize("kind", ["masked", "classify", "regress"])
def test_a_hugging_face_folder_answers_the_same(tmp_path: Path, kind: str) -> None:
    ours = save_model(tmp_path / "ours", kind)  # type: ignore[arg-type]
    convert_folder(ours, tmp_path / "theirs", to="huggingface")
    first, second = load(ours), load(tmp_path / "theirs")
    inputs = texts(6)
    np.testing.assert_array_equal(first.embed(inputs), second.embed(inputs))
    if kind == "masked":
        assert first.fill("the [MASK] sails") == second.fill("the [MASK] sails")
    elif kind == "classify":
        assert first.classify(inputs) == second.classify(inputs)
        assert second.pair("the whale", "a ship").label in LABELS


def test_a_card_says_what_the_model_is_for(tmp_path: Path) -> None:
    card = TaskCard(task=SENTIMENT, max_length=32)
    model = load(save_model(tmp_path / "m", "classify", card=card))
    assert model.card == card
    assert model.verbs == ("embed", "classify")
    message = (
        r"this model cannot pair \(it was fine-tuned for sst2\); it can embed and classify; "
        "fine-tune one: .*finetune pair"
    )
    with pytest.raises(ConfigError, match=message):
        model.pair("a", "b")


def test_a_card_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    wrong = TaskCard(task=replace(SENTIMENT, labels=("yes", "no")), max_length=32)
    with pytest.raises(
        CheckpointError,
        match=r"the task\.json beside the model cannot be used: .*they do not belong together",
    ):
        load(save_model(tmp_path / "m", "classify", card=wrong))


def test_what_is_not_a_model_is_refused(tmp_path: Path, pretrained: Path) -> None:
    with pytest.raises(
        CheckpointError,
        match=r"there is no .*nowhere; expected the folder of a checkpoint, a run or a Hugging",
    ):
        load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"there is no x{300}; expected the folder"):
        load("x" * 300)
    bare = Checkpoint(model=Checkpoint.load(pretrained).model).save(tmp_path / "bare")
    with pytest.raises(
        CheckpointError,
        match=r"the model has no tokenizer beside it; copy its spiece\.model into the folder",
    ):
        load(bare)
    with pytest.raises(ConfigError, match="batch_tokens is a whole number from 1; got 0"):
        load(pretrained, batch_tokens=0)
    for device in ("gpu", "cuda:77"):
        with pytest.raises(
            ConfigError, match=f"there is no device '{device}' here: .*; see litebert doctor"
        ):
            load(pretrained, device=device)


def test_the_name_of_a_preset_says_how_to_get_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        CheckpointError,
        match=r"holds no weights of it, and downloads none; .*litebert convert FOLDER TARGET",
    ):
        litebert.load("albert-base-v2")


def test_the_fingerprint_is_of_all_that_answers_follow_from(tmp_path: Path) -> None:
    card = TaskCard(task=SENTIMENT, max_length=32)
    folders = {
        "plain": save_model(tmp_path / "a", "classify"),
        "weights": save_model(tmp_path / "b", "classify", seed=1),
        "card": save_model(tmp_path / "c", "classify", card=card),
        "length": save_model(tmp_path / "d", "classify", card=replace(card, max_length=33)),
    }
    prints = {name: load(folder).fingerprint for name, folder in folders.items()}
    assert len(set(prints.values())) == len(prints)
    assert load(folders["card"], batch_tokens=7).fingerprint == prints["card"]


def test_a_task_that_is_no_card_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "m", "classify", card=TaskCard(task=SENTIMENT, max_length=32))
    (folder / "manifest.json").unlink()
    (folder / "task.json").write_text(json.dumps({"task": 3}))
    with pytest.raises(
        CheckpointError,
        match=r"the task\.json beside the model cannot be used: .*max_length is missing",
    ):
        load(folder, unverified=True)


def test_the_predictor_imports_no_torch() -> None:
    """Engines without torch are to use it as it is."""
    modules = "litebert.infer.predictor, litebert.infer.formats"
    program = f"import sys, {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
