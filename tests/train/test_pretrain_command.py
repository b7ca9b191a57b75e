"""The command line of pretraining: what it refuses and how it says so, continued pretraining, the
rehearsal."""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from litebert.cli import run as litebert
from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.convert.folder import convert_folder
from litebert.data.batch import Batch
from litebert.errors import ConfigError, DataError
from litebert.files import write_folder
from litebert.model.model import Model
from litebert.models.index import EmbeddedModel
from litebert.objective import Losses
from litebert.recipes import PretrainRecipe, Stages
from litebert.recipes.recipe import ADDED
from litebert.storage.checkpoint import Checkpoint
from litebert.storage.snapshot import SnapshotStore
from litebert.testing import tiny_recipe, tiny_shards, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from litebert.train.folder import RunFolder
from litebert.train.loop import Loop, State
from litebert.train.pretrain import dry_run
from litebert.train.pretrain.init import load_initial_weights
from litebert.train.pretrain.run import Pretraining
from litebert.train.runtime import StopSignal
from tests.helpers.launch import FLAGS
from tests.helpers.pretraining import CPU, Watched, train


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """The command line takes SIGTERM over; give it back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def pretrain(shards: Path, out: Path, *flags: str) -> int:
    return litebert(
        ["pretrain", "--data", str(shards), "--out", str(out), *FLAGS, "--workers", "0", *flags]
    )


@pytest.fixture(scope="module")
def finished(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert pretrain(shards, run) == 0
    return run


def test_a_run_folder_holds_what_the_run_was_and_found(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    expected = {
        "recipe.json",
        "environment.json",
        "metrics.jsonl",
        "snapshots",
        "best",
        "final",
        "status.json",
        "verified.json",
        ".lock",
    }
    assert names == expected
    environment = json.loads((finished / "environment.json").read_text())
    assert environment["packages"]["torch"] == torch.__version__
    assert environment["device"] == "cpu"
    loaded = Checkpoint.load(finished / "final")
    assert loaded.tokenizer is not None
    assert set(loaded.model.heads) == {"masked", "order"}


@pytest.mark.parametrize("part", ["tokens", "sentences", "documents"])
def test_damaged_shards_are_refused_before_the_first_step(
    part: str, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = Path(shutil.copytree(shards, tmp_path / "shards"))
    path = damaged / f"00000.{part}.npy"
    content = bytearray(path.read_bytes())
    for position in range(136, len(content) - 8, 50):
        content[position] ^= 1
    path.write_bytes(content)
    assert pretrain(damaged, tmp_path / "run") == 3
    message = capsys.readouterr().err
    assert f"00000.{part}.npy does not have the sha256" in message
    assert "run the same `litebert data build` again" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "difference"),
    [
        (("--learning-rate", "3e-3"), "optimizer.learning_rate: 0.002 in the run, 0.003 now"),
        (("--seed", "5"), "seed: 0 in the run, 5 now"),
        (("--depth", "0:2,7:3"), "depth: 0:1,7:3 in the run, 0:2,7:3 now"),
        (("--encoder", "norm=post"), "overrides.norm: pre in the run, post now"),
        (("--heldout-fraction", "0.2"), "heldout_fraction: 0.1 in the run, 0.2 now"),
    ],
)
def test_a_changed_recipe_is_refused_with_the_difference(
    finished: Path,
    shards: Path,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    difference: str,
) -> None:
    before = (finished / "status.json").read_text()
    assert pretrain(shards, finished, *flags) == 2
    message = capsys.readouterr().err
    assert "holds another run, so it cannot be resumed; choose another --out" in message
    assert f"take its own recipe (--recipe {finished / 'recipe.json'}), or undo: " in message
    assert difference in message
    assert (finished / "status.json").read_text() == before  # the run that is there is left alone


def test_files_that_no_run_wrote_are_not_replaced(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "snapshots").mkdir()
    assert pretrain(shards, tmp_path) == 2
    assert "holds snapshots and no recipe.json of a run" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} <= {"snapshots", ".lock"}


def test_a_recipe_edited_in_the_runs_own_folder_is_refused(
    finished: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folder and command agree then; the snapshot has the recipe that it was trained with."""
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    assert pretrain(shards, run) == 0
    wrote = json.loads((run / "recipe.json").read_text())
    wrote["recipe"]["seed"] = 5
    (run / "recipe.json").write_text(json.dumps(wrote))
    assert pretrain(shards, run, "--seed", "5") == 3
    assert re.search(
        r"snapshot of step 12 in .* is of another run, or .*recipe\.json was edited: seed: 0 in "
        r"the "
        "run, 5 now",
        capsys.readouterr().err,
    )


def test_a_snapshot_of_another_run_of_the_same_shapes_is_refused(
    finished: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of another seed, and one of the very same recipe."""
    for seed, reason in (("5", "seed: 0 in the run, 5 now"), ("0", "it has another run's id")):
        run = tmp_path / seed
        assert pretrain(shards, run, "--seed", seed) == 0
        before = (run / "metrics.jsonl").read_bytes()
        shutil.rmtree(run / "snapshots")
        shutil.copytree(finished / "snapshots", run / "snapshots")
        capsys.readouterr()
        assert pretrain(shards, run, "--seed", seed) == 3
        message = capsys.readouterr().err
        assert "the snapshot of step 12 in" in message
        assert reason in message
        assert (run / "metrics.jsonl").read_bytes() == before


def test_a_snapshot_by_the_first_names_and_without_later_settings_resumes(
    finished: Path, shards: Path, tmp_path: Path
) -> None:
    """Names and settings of 0.1.0's first recipes are mapped before they are compared."""
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    (newest,) = sorted((run / "snapshots").glob("step-*"))[-1:]
    snapshot = SnapshotStore(run / "snapshots").latest()
    assert snapshot is not None
    recipe = dict(snapshot.run["recipe"])
    recipe["optimizer"] = dict(recipe["optimizer"])
    recipe["optimizer"]["rate"] = recipe["optimizer"].pop("learning_rate")
    recipe["optimizer"]["decay"] = recipe["optimizer"].pop("schedule")
    for added in ADDED.keys() & recipe.keys():  # some are of fine-tuning alone
        del recipe[added]
    older = replace(snapshot, run={**snapshot.run, "recipe": recipe})
    write_folder(newest, older.write, replace=True)
    before = (run / "metrics.jsonl").read_bytes()
    assert pretrain(shards, run) == 0
    assert (run / "metrics.jsonl").read_bytes().startswith(before)


def test_settings_that_only_watch_are_not_refused(finished: Path, shards: Path) -> None:
    assert pretrain(shards, finished, "--save-every", "100", "--microbatch-tokens", "400") == 0


def test_another_corpus_and_another_tokenizer_are_refused(finished: Path, tmp_path: Path) -> None:
    recipe = json.loads((finished / "recipe.json").read_text())["recipe"]
    from litebert.recipes import PretrainRecipe

    for number, changes in enumerate(({"seed": 1}, {"vocab_size": 80})):
        other = tiny_shards(tmp_path / f"data-{number}", **changes)
        expected = (
            r"undo: corpus: \w{12}… in the run, \w{12}… now"
            if number == 0
            else r"tokenizer: \w{12}… .*; corpus: "
        )
        with pytest.raises(ConfigError, match=expected):
            train(PretrainRecipe.from_dict(recipe), other, finished)


def test_a_recipe_that_cannot_be_read_is_refused(
    finished: Path, shards: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text("{")
    with pytest.raises(
        ConfigError,
        match=r"recipe\.json cannot be read as the recipe of a run: .*; choose another --out",
    ):
        train(tiny_recipe(), shards, tmp_path / "run")


def test_two_processes_in_one_folder_are_refused(
    finished: Path, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = RunFolder(finished)
    holder.hold()
    try:
        assert pretrain(shards, finished) == 2
    finally:
        holder.release()
    assert (
        f"another process is running in {finished}; wait for it, or choose another --out"
        in capsys.readouterr().err
    )
    assert pretrain(shards, finished) == 0


def test_a_run_that_goes_on_elsewhere_says_that_bits_may_differ(
    shards: Path, finished: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "run"
    shutil.copytree(finished, moved)
    environment = json.loads((moved / "environment.json").read_text())
    (moved / "environment.json").write_text(json.dumps(environment | {"threads": 64}))
    messages: list[str] = []
    from litebert.recipes import PretrainRecipe

    recipe = PretrainRecipe.from_dict(json.loads((moved / "recipe.json").read_text())["recipe"])
    Pretraining(recipe, shards, CPU, say=messages.append).train(moved, progress=False)
    assert messages == ["the run resumes, but not bit for bit: threads 64 then, 1 now"]


def test_a_recipe_file_gives_the_same_run(finished: Path, shards: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    flags = ["--recipe", str(finished / "recipe.json"), "--device", "cpu", "--workers", "0"]
    assert litebert(["pretrain", "--data", str(shards), "--out", str(run), *flags]) == 0
    mine, theirs = (
        Checkpoint.load(folder / "final").model.state_dict() for folder in (run, finished)
    )
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


WRONG = {
    "--recipe nowhere": r"there is no recipe 'nowhere'; known: ",
    "--preset albert-huge": r"there is no preset 'albert-huge'; did you mean",
    "--encoder norm": r"an encoder setting is written name=value, such as norm=pre; got 'norm'",
    "--encoder hidden_size=33": r"hidden_size must be a multiple of num_attention_heads",
    "--encoder vocab_size=100": (
        r"the vocabulary is that of the data's tokenizer; leave vocab_size " r"out"
    ),
    "--steps 0": r"steps is a whole number from 1",
    "--steps 5 --tokens 5": r"a budget is steps or tokens, the other none",
    "--batch-size many": (
        r"stages are a number \(128\) or start:value pairs \(0:128,0.5:512\); got " r"'many'"
    ),
    "--sequence-length 500": r"sequence_length reaches 500, the encoder reads at most 64",
    "--depth 9": r"depth ends at the encoder's 3 layers, and none is more; got 9",
    "--warmup 99": r"warm-up takes 99 steps, the run has 12; shorten the warm-up",
    "--workers -1": r"workers is a number of processes from 0; got -1",
    "--device tpu9": r"there is no device 'tpu9' here: .*; see litebert doctor",
    "--data nowhere": r"nowhere has no index.json: it holds no shards",
    "--init nowhere": r"nowhere is not a folder; expected a checkpoint with config.json",
    "--heldout-fraction 0.0001": (
        r"nothing to evaluate on: of 60 documents 0.0001 are held out.*; raise "
        r"--heldout-fraction"
    ),
}


@pytest.mark.parametrize("flags", WRONG)
def test_wrong_flags_are_answered_in_one_sentence(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str
) -> None:
    code = pretrain(shards, tmp_path / "run", *flags.split())
    message = capsys.readouterr().err
    assert code == (3 if any(word in flags for word in ("--data", "--init", "--heldout")) else 2)
    assert re.search(WRONG[flags], message)
    assert message.startswith("litebert pretrain: ")
    assert message.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_recipe_files_that_are_no_recipes(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, expected in (
        (b"\xff", "is not JSON"),
        (b"[1]", "holds no recipe; a recipe file is what a run writes"),
        (b'{"rat": 1}', "no recipe setting 'rat'"),
    ):
        (tmp_path / "recipe.json").write_bytes(text)
        assert pretrain(shards, tmp_path / "run", "--recipe", str(tmp_path / "recipe.json")) == 2
        assert expected in capsys.readouterr().err


def test_a_run_folder_that_is_a_file(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(ConfigError, match="run is a file; --out takes a folder for the run"):
        train(tiny_recipe(), shards, tmp_path / "run")


def test_a_rehearsal_tells_what_a_run_takes_and_writes_nothing(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert pretrain(shards, tmp_path / "run", "--dry-run", "--json") == 0
    captured = json.loads(capsys.readouterr().out)
    assert (captured["batch_size"], captured["sequence_length"], captured["steps"]) == (8, 24, 12)
    assert captured["tokens"] == 4 * 4 * 16 + 2 * 8 * 16 + 6 * 8 * 24
    assert captured["microbatch_rows"] == 2  # 64 tokens at a time
    assert captured["mask_fraction"] == 0.35
    assert captured["memory_bytes"] > 2**20
    assert captured["tokens_per_second"] > 0
    parameters = sum(parameter.numel() for parameter in tiny_model(shards).parameters())
    assert (
        captured["disk_bytes"] > parameters * 4 * 11
    )  # three snapshots with two moments, best and final
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert pretrain(shards, tmp_path / "run", "--dry-run") == 0
    shown = capsys.readouterr().out
    for line in (
        "largest batch   8 × 24 tokens, 2 at a time, 35% masked",
        "memory ",
        "speed ",
        "time ",
        "disk ",
        "transformers    loads it with trust_remote_code=True, since it has no Albert with norm = ",
    ):
        assert line in shown
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("has_graphs", "changes", "expected"),
    [
        (False, {}, 3),
        (True, {}, 8),  # of two microbatches each
        (True, {"microbatch_tokens": 24}, 5),  # of eight
        (True, {"steps": 4}, 4),
        (True, {"sequence_length": Stages.parse("0:24,7:16")}, 7),
    ],
)
def test_a_rehearsal_with_cuda_graphs_goes_on_until_they_are_replayed(
    has_graphs: bool,
    changes: dict[str, Any],
    expected: int,
    shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within the stage of the largest batch; without them three steps are enough."""
    steps: list[int] = []

    class Counted(Loop[Batch, Losses]):
        def step(self, state: State, stop: StopSignal) -> State:
            steps.append(state.step)
            return super().step(state, stop)

    class Graphed(Pretraining):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.graphs = object() if has_graphs else None  # type: ignore[assignment]

    monkeypatch.setattr(dry_run, "Loop", Counted)
    monkeypatch.setattr(dry_run, "Pretraining", Graphed)
    dry_run.run_dry(tiny_recipe(**changes), shards, tmp_path, device="cpu", workers=0)
    assert steps == list(range(expected))


def test_where_a_model_will_load_is_told_before_the_first_step(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages: list[str] = []
    for norm, order in (("post", "sop"), ("post", "none"), ("pre", "sop")):
        recipe = tiny_recipe(steps=1, encoder={"norm": norm}, order=order)
        training = Pretraining(recipe, shards, CPU, say=messages.append)
        training.train(tmp_path / f"{norm}-{order}", progress=False)
    assert [message for message in messages if "transformers" in message] == [
        "once converted, transformers loads the model as AlbertForPreTraining",
        "once converted, transformers loads the model as AlbertForMaskedLM",
        "once converted, transformers loads the model with trust_remote_code=True, since it has no "
        "Albert with norm = pre (models of the recipe affordable-post load as AlbertModel)",
    ]


def tiny_model(shards: Path) -> Model:
    size = Tokenizer.load(shards / "tokenizer").vocab_size
    return Model(
        ModelConfig(
            encoder=replace(PRESETS["tiny"], vocab_size=size), heads=(HeadConfig(kind="masked"),)
        )
    )


def test_continued_pretraining_starts_from_the_checkpoint(
    finished: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without flags for the shape it is the checkpoint's; a rate of 0 shows that nothing else
    moved."""
    flags = [
        "--init",
        str(finished / "final"),
        "--learning-rate",
        "0",
        "--steps",
        "2",
        "--batch-size",
        "4",
        "--sequence-length",
        "16",
    ]
    command = ["pretrain", "--data", str(shards), "--out", str(tmp_path / "run"), *flags]
    more = ["--device", "cpu", "--heldout-fraction", "0.1", "--workers", "0"]
    assert litebert([*command, *more]) == 0
    assert re.search(
        r"weights start from .*final: 88 of 88 tokens keep their rows\n", capsys.readouterr().err
    )
    mine, theirs = (
        Checkpoint.load(folder / "final").model.state_dict()
        for folder in (tmp_path / "run", finished)
    )
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    without = ["pretrain", "--data", str(shards), "--out", str(tmp_path / "run"), *flags[2:], *more]
    assert litebert(without) == 2
    assert re.search(r"init: .*final in the run, none now", capsys.readouterr().err)


@pytest.mark.parametrize("run", [True, False])
def test_a_run_and_a_model_of_the_package_are_starts_as_well(
    run: bool,
    finished: Path,
    shards: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with finetune --model: the folder of a run, or a name."""
    embedded = EmbeddedModel(name="small", verbs=("fill",), folder=finished / "final")
    monkeypatch.setattr("litebert.models.index.embedded_models", lambda: (embedded,))
    flags = [
        "--init",
        str(finished) if run else "small",
        "--learning-rate",
        "0",
        "--steps",
        "1",
        "--batch-size",
        "4",
    ]
    more = [
        "--sequence-length",
        "16",
        "--device",
        "cpu",
        "--heldout-fraction",
        "0.1",
        "--workers",
        "0",
    ]
    assert (
        litebert(["pretrain", "--data", str(shards), "--out", str(tmp_path / "run"), *flags, *more])
        == 0
    )
    assert re.search(
        r"weights start from .*final: 88 of 88 tokens keep their rows\n", capsys.readouterr().err
    )


def test_a_new_vocabulary_keeps_the_rows_of_common_pieces(finished: Path, tmp_path: Path) -> None:
    old = Checkpoint.load(finished / "final")
    texts = [
        f"the sailor meets the {word} of a harbour ."
        for word in ("keeper", "widow", "tavern", "lantern") * 5
    ]
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer", vocab_size=50, texts=texts))
    torch.manual_seed(1)
    config = replace(old.model.config.encoder, vocab_size=tokenizer.vocab_size)
    model = Model(ModelConfig(encoder=config, heads=old.model.config.heads))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert old.tokenizer is not None
    common = set(old.tokenizer.tokens) & set(tokenizer.tokens)
    assert 5 < len(common) < tokenizer.vocab_size
    said = load_initial_weights(model, old, tokenizer)
    assert said == f"{len(common)} of {tokenizer.vocab_size} tokens keep their rows"
    table, known = model.encoder.embedding.token.weight, old.model.encoder.embedding.token.weight
    bias, known_bias = (
        model.state_dict()["heads.masked.bias"],
        old.model.state_dict()["heads.masked.bias"],
    )
    for number, piece in enumerate(tokenizer.tokens):
        if piece in common:
            then = old.tokenizer.tokens.index(piece)
            assert torch.equal(table[number], known[then])
            assert bias[number] == known_bias[then]
        else:
            assert torch.equal(table[number], before["encoder.embedding.token.weight"][number])
    others = [
        name
        for name in before
        if name not in ("encoder.embedding.token.weight", "heads.masked.bias")
    ]
    assert all(
        torch.equal(model.state_dict()[name], old.model.state_dict()[name]) for name in others
    )


def test_another_shape_is_refused_with_the_difference(
    finished: Path, shards: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError, match=r"--init has another shape: .*hidden_size: 32 there, 64 here"
    ):
        Watched(tiny_recipe(encoder={"hidden_size": 64}), shards, CPU, init=finished / "final")


def test_a_shared_model_may_start_with_fewer_layers(finished: Path, shards: Path) -> None:
    """ALBERT Table 11: the same layer, applied more often."""
    trained = PretrainRecipe.load(finished / "recipe.json")
    deeper = trained.changed({"encoder": {"num_layers": 5}, "depth": None})
    model = Watched(deeper, shards, CPU, init=finished / "final").learner.model
    old = Checkpoint.load(finished / "final").model
    assert len(model.encoder.plan) == 5
    ours, theirs = (each.encoder.state_dict() for each in (model, old))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    unshared = deeper.changed({"encoder": {"num_groups": 5}})
    with pytest.raises(ConfigError, match=r"another shape: .*num_layers: \d there, 5 here"):
        Watched(unshared, shards, CPU, init=finished / "final")


def test_a_checkpoint_without_tokenizer_needs_the_same_number_of_pieces(
    finished: Path, shards: Path, tmp_path: Path
) -> None:
    old = Checkpoint.load(finished / "final")
    Checkpoint(model=old.model).save(tmp_path / "bare")
    tokenizer = Tokenizer.load(shards / "tokenizer")
    assert old.tokenizer is not None
    assert load_initial_weights(
        old.model, Checkpoint.load(tmp_path / "bare"), old.tokenizer
    ).startswith("88 of 88")
    other = Tokenizer.load(tiny_tokenizer(tmp_path / "other", vocab_size=70))
    with pytest.raises(
        ConfigError,
        match=r"has no tokenizer and 88 tokens, the data \d+; put its spiece.model into its folder",
    ):
        load_initial_weights(old.model, Checkpoint.load(tmp_path / "bare"), other)
    assert tokenizer.vocab_size == 88


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_checkpoint_without_heads_or_pooler_gets_new_ones(
    shards: Path, tmp_path: Path, norm: str
) -> None:
    tokenizer = Tokenizer.load(shards / "tokenizer")
    size = {"vocab_size": tokenizer.vocab_size, "norm": norm}
    bare = Model(ModelConfig(encoder=replace(PRESETS["tiny"], **size, pooler=False), heads=()))
    model = Model(
        ModelConfig(
            encoder=replace(PRESETS["tiny"], **size),
            heads=(HeadConfig(kind="masked"), HeadConfig(kind="order")),
        )
    )
    said = load_initial_weights(model, Checkpoint(model=bare, tokenizer=tokenizer), tokenizer)
    assert said.endswith("tokens keep their rows; new: masked, order, pooler")


def test_a_checkpoint_without_pooler_is_trained_on_with_the_dropout_of_the_recipe(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `finetune embed` saves it, or transformers' AlbertForMaskedLM."""
    tokenizer = Tokenizer.load(shards / "tokenizer")
    shape = {"vocab_size": tokenizer.vocab_size, "pooler": False, "ffn_dropout": 0.1}
    model = Model(ModelConfig(encoder=replace(PRESETS["tiny"], **shape), heads=()))
    Checkpoint(model=model, tokenizer=tokenizer).save(tmp_path / "start")
    data = ["--data", str(shards), "--out", str(tmp_path / "run")]
    size = ["--steps", "1", "--batch-size", "4", "--sequence-length", "16"]
    more = ["--device", "cpu", "--heldout-fraction", "0.1", "--workers", "0"]
    assert litebert(["pretrain", "--init", str(tmp_path / "start"), *data, *size, *more]) == 0
    assert "tokens keep their rows; new: masked, order, pooler\n" in capsys.readouterr().err
    trained = Checkpoint.load(tmp_path / "run" / "final").model.config.encoder
    assert trained == replace(model.config.encoder, pooler=True, ffn_dropout=0.0)


def test_a_converted_checkpoint_is_trained_on(shards: Path, tmp_path: Path) -> None:
    """Hugging Face's folder of a small ALBERT with this vocabulary, converted, then continued by
    the command line."""
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.load(shards / "tokenizer")
    config = transformers.AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    torch.manual_seed(3)
    theirs = transformers.AlbertForPreTraining(config)
    theirs.save_pretrained(tmp_path / "huggingface")
    tokenizer.save(tmp_path / "huggingface")
    convert_folder(tmp_path / "huggingface", tmp_path / "converted")
    flags = [
        "--init",
        str(tmp_path / "converted"),
        "--steps",
        "3",
        "--batch-size",
        "4",
        "--sequence-length",
        "16",
    ]
    more = [
        "--device",
        "cpu",
        "--heldout-fraction",
        "0.1",
        "--workers",
        "0",
        "--learning-rate",
        "0",
    ]
    assert (
        litebert(["pretrain", "--data", str(shards), "--out", str(tmp_path / "run"), *flags, *more])
        == 0
    )
    final = Checkpoint.load(tmp_path / "run" / "final").model
    name = "albert.embeddings.word_embeddings.weight"
    assert torch.equal(final.encoder.embedding.token.weight, theirs.state_dict()[name])


def test_no_evaluation_where_nothing_is_held_out(shards: Path, tmp_path: Path) -> None:
    training = train(tiny_recipe(heldout_fraction=0.0), shards, tmp_path / "run")
    assert set(training.result.details) == {"steps", "tokens", "seconds"}  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="nothing to evaluate on"):
        Watched(tiny_recipe(heldout_fraction=0.0001), shards, CPU)


def test_a_disk_without_room_for_a_snapshot_is_refused_before_the_first_step(
    shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100_000))
        assert pretrain(shards, tmp_path / "run") == 3
    assert re.search(
        r"a snapshot and the checkpoints of this run need [\d.]+ MB, .*run has 0\.1 MB free; make "
        "room",
        capsys.readouterr().err,
    )
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""
    assert pretrain(shards, tmp_path / "run") == 0
