"""What a study runs, read from its commands: starts, ensembles, budgets of time, probes; and what
is trained again because weights are gone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from litebert.errors import ConfigError
from litebert.files import read_json, write_json
from litebert.lab.catalog import STUDIES
from litebert.lab.estimate import study_bytes, study_flops, training_bytes
from litebert.lab.plan import StudyInputs, find_tasks, plan_study
from litebert.lab.pool import Job
from litebert.lab.results import RECIPE, RESULT, SPEED
from litebert.lab.study import Row, Scale, Study
from litebert.recipes import PretrainRecipe
from litebert.testing import tiny_shards, tiny_task


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> StudyInputs:
    folder = tmp_path_factory.mktemp("inputs")
    shards = tiny_shards(folder / "tiny")
    tiny_task(folder / "tasks" / "glue", "rte")
    (folder / "tasks" / "blimp").mkdir()
    return StudyInputs(data=shards, tasks=folder / "tasks", device="cpu")


def plan(name: str, out: Path, inputs: StudyInputs, seeds: int = 1) -> dict[str, Job]:
    jobs = plan_study(STUDIES[name], "cpu", out, inputs, seeds=seeds)
    return {job.folder.name: job for job in jobs}


def words(job: Job) -> list[str]:
    return [" ".join(command.words) for command in job.commands]


def test_tasks_are_at_hand_where_they_can_be_learned_and_scored(
    tmp_path: Path, inputs: StudyInputs
) -> None:
    assert find_tasks(["rte", "cola", "squad1", "diagnostic"], inputs.tasks) == {
        "rte": str(inputs.tasks / "glue" / "RTE")  # type: ignore[operator]
    }
    squad = tiny_task(tmp_path / "squad", "squad1")
    assert find_tasks(["squad1"], tmp_path) == {"squad1": str(squad)}
    (squad / "train-v1.1.json").unlink()
    assert find_tasks(["squad1"], tmp_path) == {}
    with pytest.raises(ConfigError, match="there is no task 'colla'; did you mean 'cola'"):
        find_tasks(["colla"], tmp_path)


def test_settings_of_fine_tuning_may_be_numbers(tmp_path: Path, inputs: StudyInputs) -> None:
    scale = Scale(recipe="demo", tasks=("rte",), finetune={"epochs": 3, "exits": "each"})
    study = Study(name="mine", title="mine", rows=(Row(name="a"),), scales={"cpu": scale})
    (job,) = plan_study(study, "cpu", tmp_path, inputs, seeds=1)
    assert words(job)[-1].endswith("--epochs 3 --exits each")


def test_deeper_models_start_from_shallower_ones(tmp_path: Path, inputs: StudyInputs) -> None:
    jobs = plan("depth", tmp_path, inputs, seeds=2)
    deeper = jobs["12-layers-seed1"]
    assert deeper.needs == [jobs["6-layers-seed1"]]
    assert f"--init {tmp_path / '6-layers-seed1/pretrain/final'} --preset" in words(deeper)[0]
    assert "num_layers=12" in words(deeper)[0]
    assert not jobs["1-layers-seed0"].needs


def test_weights_that_are_gone_are_trained_again(tmp_path: Path, inputs: StudyInputs) -> None:
    for name in ("1-layers-seed0", "3-layers-seed0"):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / RESULT, {"row": name})
    jobs = plan("depth", tmp_path, inputs)
    assert list(jobs)[:3] == ["1-layers-seed0", "3-layers-seed0", "6-layers-seed0"]
    again = jobs["3-layers-seed0"]
    assert [each.split()[1] for each in words(again)] == ["pretrain"]  # it has been measured
    before = (tmp_path / "3-layers-seed0" / RESULT).read_text()
    again.finish(again)  # its result stays
    assert (tmp_path / "3-layers-seed0" / RESULT).read_text() == before
    (tmp_path / "3-layers-seed0" / "pretrain" / "final").mkdir(parents=True)
    assert "3-layers-seed0" not in plan("depth", tmp_path, inputs)


def test_what_is_asked_for_later_is_measured(tmp_path: Path, inputs: StudyInputs) -> None:
    """Where the weights are there; else it is said."""
    study = STUDIES["order"]
    for name, measured in (("none", ["order"]), ("nsp", ["order"]), ("sop", ["order", "rte"])):
        (tmp_path / f"{name}-seed0").mkdir()
        write_json(tmp_path / f"{name}-seed0" / RESULT, {"row": name, "measured": measured})
    (tmp_path / "none-seed0" / "pretrain" / "final").mkdir(parents=True)
    lines: list[str] = []
    jobs = plan_study(study, "cpu", tmp_path, inputs, seeds=1, say=lines.append)
    assert [job.folder.name for job in jobs] == ["none-seed0"]
    assert "finetune rte" in words(jobs[0])[-1]
    assert lines == [
        "order: finished runs lack rte (1 cells), and their weights are gone; delete their "
        "result.json to train them again"
    ]


def test_an_ensemble_waits_for_its_members(tmp_path: Path, inputs: StudyInputs) -> None:
    jobs = plan("ensemble", tmp_path, inputs, seeds=2)
    each, every = jobs["three-checkpoints-of-a-seed-seed1"], jobs["all-seeds-of-the-third-seed0"]
    assert "all-seeds-of-the-third-seed1" not in jobs
    assert [job.folder.name for job in each.needs] == [
        "first-checkpoint-seed1",
        "second-checkpoint-seed1",
        "third-checkpoint-seed1",
    ]
    assert len(every.needs) == 2
    assert words(each)[0].startswith("litebert.cli ensemble rte --data")
    with pytest.raises(ConfigError, match="averages fine-tuned models; name the folder of the ta"):
        plan("ensemble", tmp_path / "b", StudyInputs(data=inputs.data))


def test_an_ensemble_fine_tunes_what_another_run_starts_from(
    tmp_path: Path, inputs: StudyInputs
) -> None:
    """The third checkpoint is missing and starts from the second, which is finished."""
    for name in ("first-checkpoint-seed0", "second-checkpoint-seed0"):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / RESULT, {"row": name})
    jobs = plan("ensemble", tmp_path, inputs)
    for name in ("first", "second", "third"):
        verbs = [each.split()[1] for each in words(jobs[f"{name}-checkpoint-seed0"])]
        assert verbs.count("pretrain") == verbs.count("finetune") == 1


def test_an_ensemble_of_more_seeds_is_measured_again(tmp_path: Path, inputs: StudyInputs) -> None:
    name = "all-seeds-of-the-third-seed0"
    (tmp_path / name).mkdir()
    members = ["third-checkpoint-seed0", "third-checkpoint-seed1"]
    write_json(tmp_path / name / RESULT, {"row": name, "members": members})
    assert [name in plan("ensemble", tmp_path, inputs, seeds) for seeds in (1, 2, 3)] == [
        False,
        False,
        True,
    ]


def test_equal_time_takes_its_tokens_from_a_measured_speed(
    tmp_path: Path, inputs: StudyInputs
) -> None:
    job = plan("equal-time", tmp_path, inputs)["nothing-shared-seed0"]
    assert job.is_alone
    rehearsal, training = job.commands[:2]
    assert "--dry-run" in rehearsal.words
    write_json(job.folder / SPEED, {"tokens_per_second": 500})
    assert training.arguments() == ["--tokens", str(2 * 60 * 500)]
    recipe = PretrainRecipe.load(job.folder / RECIPE)
    half = recipe.tokens_in(recipe.total_steps) // 2
    step = {"kind": "step", "step": 1, "tokens": half, "seconds": 120.0}
    (job.folder / "pretrain").mkdir()
    (job.folder / "pretrain" / "metrics.jsonl").write_text(json.dumps(step) + "\n")
    job.finish(job)
    assert read_json(job.folder / RESULT)["flops"] == pytest.approx(job.cost / 2, rel=1e-3)
    (job.folder / RESULT).unlink()
    again = plan("equal-time", tmp_path, inputs)["nothing-shared-seed0"]
    assert "--dry-run" not in again.commands[0].words  # a resumed run keeps its length


def test_measurements_of_a_model_have_commands(tmp_path: Path, inputs: StudyInputs) -> None:
    grammar = words(plan("agreement", tmp_path / "a", inputs)["all-shared-seed0"])
    assert "evaluate blimp" in grammar[1]
    assert grammar[1].endswith("--limit 50")
    exits = words(plan("exits", tmp_path / "b", inputs)["all-shared-seed0"])
    assert exits[-1].endswith("--exits each")
    frozen = plan("baselines", tmp_path / "c", inputs)
    assert words(frozen["word2vec-seed0"])[0].startswith("litebert.lab.baselines --method word2vec")
    assert "litebert.lab.vectors" in words(frozen["word2vec-seed0"])[1]
    assert len(frozen["word2vec-seed0"].commands) == 2  # word vectors are not fine-tuned
    text = tmp_path / "text.txt"
    with_text = StudyInputs(data=inputs.data, text=text, device="cpu")
    assert any(
        f"evaluate masked --model {tmp_path}/d/none-seed0/pretrain --data {text}" in each
        for each in words(plan("order", tmp_path / "d", with_text)["none-seed0"])
    )


def test_speed_is_timed_once_more_with_two_ranks(tmp_path: Path, inputs: StudyInputs) -> None:
    job = plan("speed", tmp_path, inputs)["bert-base-seed0"]
    assert job.is_alone
    one, two = words(job)
    assert one.startswith("litebert.cli pretrain")
    assert two.startswith("torch.distributed.run --standalone --nproc-per-node 2 -m litebert.cli")


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [("auto", 2, 2), ("auto", 1, 1), ("cuda:1", 2, 1), ("cpu", 1, 2), ("auto", 0, 2)],
)
def test_two_ranks_are_timed_where_each_has_a_device(
    tmp_path: Path,
    inputs: StudyInputs,
    device: str,
    gpus: int,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    jobs = plan("speed", tmp_path, replace(inputs, device=device))
    assert len(jobs["bert-base-seed0"].commands) == expected


def test_more_data_is_asked_for_and_has_the_same_vocabulary(
    tmp_path: Path, inputs: StudyInputs
) -> None:
    with pytest.raises(ConfigError, match="name their folder with --more-data"):
        plan("data", tmp_path / "a", inputs)
    other = tiny_shards(tmp_path / "other", vocab_size=70)
    with pytest.raises(ConfigError, match="hold tokens of two vocabularies"):
        plan("data", tmp_path / "b", StudyInputs(data=inputs.data, more_data=other))
    same = plan("data", tmp_path / "c", StudyInputs(data=inputs.data, more_data=inputs.data))
    assert f"--data {inputs.data}" in words(same["with-more-text-seed0"])[0]


def test_costs_grow_with_what_is_trained() -> None:
    study = STUDIES["depth"]
    twice = replace(study, scales={"cpu": replace(study.scale("cpu"), seeds=4)})
    assert study.scale("cpu").seeds == 2
    assert study_flops(twice, "cpu") == 2 * study_flops(study, "cpu")
    assert study_flops(STUDIES["parameters"], "cpu") == 0
    recipe = study.recipe(study.rows[-1], "gpu-hour")
    assert study_bytes(study, "gpu-hour") == training_bytes(recipe)
    wide = Study(
        name="wide",
        title="wide",
        rows=(Row(name="a", settings={"microbatch_tokens": 256}), Row(name="b")),
        scales={"gpu-hour": Scale()},
    )
    few, many = (training_bytes(wide.recipe(row, "gpu-hour")) for row in wide.rows)
    assert few < many
