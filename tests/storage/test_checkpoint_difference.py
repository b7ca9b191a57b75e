"""A checkpoint may be its difference to another: small, read together with its base and with no
other."""

import hashlib
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.files import MANIFEST
from litebert.model.model import Model, bare_model
from litebert.models import index
from litebert.storage import difference
from litebert.storage.checkpoint import CONFIG, WEIGHTS, Checkpoint, read_config
from litebert.storage.difference import Difference
from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer

HEADS = (HeadConfig(kind="masked"), HeadConfig(kind="order"))
MOOD = (HeadConfig(kind="classify", labels=("bad", "good")),)
TASK = {"task": "mood"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base in 8 bits, and a model fine-tuned from it as a difference and as it is."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    tokenizer = Tokenizer.load(tiny_tokenizer(folder / "tokenizer"))
    encoder = replace(PRESETS["tiny"], norm="pre", vocab_size=tokenizer.vocab_size)
    Checkpoint(model=Model(ModelConfig(encoder=encoder, heads=HEADS)), tokenizer=tokenizer).save(
        folder / "stem", weights="int8"
    )
    base = Checkpoint.load(folder / "stem").model
    model = Model(ModelConfig(encoder=replace(encoder, ffn_dropout=0.1), heads=MOOD))
    model.encoder.load_state_dict(base.encoder.state_dict())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "query" not in name:  # as if it had been frozen
                parameter += 0.002 * torch.randn_like(parameter)
    tuned = Checkpoint(model=model.eval(), tokenizer=tokenizer, task=TASK)
    tuned.save(folder / "tuned")
    tuned.save(folder / "mood", weights=Difference(base=folder / "stem", rank=4, token_rank=2))
    return folder


@pytest.fixture
def folder(models: Path, tmp_path: Path) -> Path:
    """A copy of the difference, with its base beside it."""
    for name in ("stem", "mood"):
        shutil.copytree(models / name, tmp_path / name)
    return tmp_path / "mood"


def logits(checkpoint: Checkpoint) -> torch.Tensor:
    token_ids = torch.arange(5, 21).reshape(2, 8)
    with torch.inference_mode():
        return checkpoint.model.logits("classify", checkpoint.model.encoder(token_ids=token_ids))


def test_base_and_difference_add_up_to_the_model(models: Path) -> None:
    exact, loaded, base = (Checkpoint.load(models / name) for name in ("tuned", "mood", "stem"))
    assert (loaded.model.config, loaded.task) == (exact.model.config, TASK)
    assert read_config(models / "mood") == exact.model.config
    assert not loaded.model.training
    assert base.tokenizer is not None
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.fingerprint == base.tokenizer.fingerprint
    before, truth, merged = (each.model.state_dict() for each in (base, exact, loaded))
    assert truth.keys() == merged.keys()
    for name, weight in truth.items():
        if name in before and weight.dim() == 2 and len(weight) >= 16:
            assert (merged[name] - weight).norm() <= (before[name] - weight).norm(), name
        else:
            assert torch.equal(merged[name], weight), name
    # A merged model that is saved as it is says the same to the last bit.
    loaded.save(models / "exact")
    assert torch.equal(logits(Checkpoint.load(models / "exact")), logits(loaded))
    assert logits(loaded).shape == (2, 2)


def test_higher_ranks_approach_the_logits_of_the_model(models: Path, tmp_path: Path) -> None:
    exact = Checkpoint.load(models / "tuned")
    errors = []
    for name, rank, token_rank in (("few", 1, 0), ("some", 8, 4), ("all", 1000, 1000)):
        exact.save(
            models / name,
            weights=Difference(base=models / "stem", rank=rank, token_rank=token_rank),
        )
        errors.append((logits(Checkpoint.load(models / name)) - logits(exact)).norm().item())
    base = Checkpoint.load(models / "stem").model.encoder
    moved = replace(exact, model=Checkpoint.load(models / "tuned").model)
    moved.model.encoder.load_state_dict(base.state_dict())
    change = (logits(moved) - logits(exact)).norm().item()
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.02 * change


def test_it_is_small_and_holds_nothing_that_did_not_change(models: Path) -> None:
    stored = load_file(models / "mood" / WEIGHTS)
    assert stored
    assert not [name for name in stored if "query" in name]
    assert not list((models / "mood").glob("*spiece*"))
    assert sorted(path.name for path in (models / "mood").iterdir()) == [
        CONFIG,
        MANIFEST,
        WEIGHTS,
        "task.json",
    ]
    header = json.loads((models / "mood" / CONFIG).read_text())["weights"]
    assert {name: header[name] for name in header if name != "sha256"} == {
        "kind": "difference",
        "base": "stem",
        "rank": 4,
        "token_rank": 2,
        "group_size": 64,
    }


def test_a_classifier_from_albert_base_takes_less_than_800_kilobytes() -> None:
    shapes, base = (
        {name: tuple(tensor.shape) for name, tensor in bare_model(config).state_dict().items()}
        for config in (
            ModelConfig(encoder=PRESETS["albert-base-v2"], heads=heads) for heads in (MOOD, HEADS)
        )
    )
    width = {"I8": 1, "BF16": 2, "F32": 4}
    tensors = [
        tensor
        for tensors in difference.layout(shapes, base, Difference(base="base")).values()
        for tensor in tensors.values()
    ]
    assert (
        sum(width[kind] * torch.Size(shape).numel() for kind, shape in tensors) + 30_000 < 800_000
    )


def test_a_folder_of_any_name_may_be_the_base(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(models / "stem", tmp_path / "my base, ä.1")
    monkeypatch.chdir(tmp_path)
    loaded = Checkpoint.load(models / "tuned").save(
        "mood", weights=Difference(base="my base, ä.1", rank=4, token_rank=2)
    )
    monkeypatch.chdir(loaded)
    assert torch.equal(logits(Checkpoint.load(".")), logits(Checkpoint.load(models / "mood")))


def test_saved_twice_gives_the_same_bytes(models: Path, tmp_path: Path) -> None:
    again = Checkpoint.load(models / "tuned").save(
        tmp_path / "mood", weights=Difference(base=models / "stem", rank=4, token_rank=2)
    )
    for path in (models / "mood").iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_base_may_be_an_embedded_model(
    models: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "stem").rename(tmp_path / "models" / "stem")
    embedded = [
        index.EmbeddedModel(name="stem", verbs=("fill",), folder=tmp_path / "models" / "stem")
    ]
    (tmp_path / "models" / "index.json").write_text(index.index_text(embedded))
    monkeypatch.setattr(index, "ROOT", tmp_path / "models")
    expected = logits(Checkpoint.load(folder))
    assert torch.equal(expected, logits(Checkpoint.load(models / "mood")))
    again = Checkpoint.load(models / "tuned").save(
        tmp_path / "again", weights=Difference(base="stem", rank=4, token_rank=2)
    )
    assert torch.equal(logits(Checkpoint.load(again)), expected)
    # Another folder of that name, as of a run of one's own, is not in the way.
    shutil.copytree(models / "tuned", tmp_path / "stem")
    assert torch.equal(logits(Checkpoint.load(folder)), expected)


def test_another_base_is_refused(folder: Path, tmp_path: Path) -> None:
    base = Checkpoint.load(tmp_path / "stem")
    with torch.no_grad():
        base.model.encoder.embedding.norm.bias[0] += 1
    base.save(tmp_path / "stem", weights="int8", replace=True)
    message = (
        r"mood is stored as its difference to stem with sha256 [0-9a-f]{12}…, and \S*stem is "
        "another; put the base that it was made from beside it"
    )
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.load(folder)
    shutil.rmtree(tmp_path / "stem")
    with pytest.raises(
        CheckpointError,
        match=r"and there is no such model; put the base that it was made from beside it",
    ):
        Checkpoint.load(folder)


def test_another_vocabulary_is_another_base(folder: Path, tmp_path: Path) -> None:
    rules = tmp_path / "stem" / "tokenizer_config.json"
    rules.write_text(rules.read_text().replace("true", "false"))
    with pytest.raises(CheckpointError, match="stem is another"):
        Checkpoint.load(folder)


def test_a_damaged_base_is_refused(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "stem" / CONFIG
    config.write_text(config.read_text().replace('"ffn_size"', '"ffn_sise"'))
    with pytest.raises(CheckpointError, match="cannot be used"):
        Checkpoint.load(folder)


def test_a_difference_is_no_base(models: Path, folder: Path, tmp_path: Path) -> None:
    tuned = Checkpoint.load(models / "tuned")
    with pytest.raises(
        CheckpointError,
        match="mood is stored as a difference itself; take the model that it is based on",
    ):
        tuned.save(tmp_path / "more", weights=Difference(base=folder))
    (folder / MANIFEST).unlink()
    sha256 = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    change_header(folder, {"base": "mood", "sha256": sha256})
    with pytest.raises(
        CheckpointError, match="mood is another"
    ):  # and it does not look for its own base for ever
        Checkpoint.load(folder, unverified=True)


def test_a_base_of_another_shape_or_vocabulary_is_refused(models: Path, tmp_path: Path) -> None:
    tuned = Checkpoint.load(models / "tuned")
    encoder = replace(tuned.model.config.encoder, hidden_size=64)
    other = Checkpoint(
        model=Model(ModelConfig(encoder=encoder, heads=HEADS)), tokenizer=tuned.tokenizer
    ).save(tmp_path / "wide")
    with pytest.raises(
        CheckpointError,
        match=r"the encoder has hidden_size \d+, its base has 64; a difference needs the model",
    ):
        tuned.save(tmp_path / "mood", weights=Difference(base=other))
    bare = replace(Checkpoint.load(models / "stem"), tokenizer=None).save(tmp_path / "bare")
    with pytest.raises(
        CheckpointError,
        match="bare has another vocabulary than the model; a base is what the model was",
    ):
        tuned.save(tmp_path / "mood", weights=Difference(base=bare))
    with pytest.raises(CheckpointError, match="nowhere is not a folder"):
        tuned.save(tmp_path / "mood", weights=Difference(base="nowhere"))
    with pytest.raises(ConfigError, match="rank is a whole number from 1 to 1048576; got 0"):
        Difference(base="base", rank=0)
    assert not (tmp_path / "mood").exists()


@pytest.mark.parametrize(
    "change",
    [
        *({"base": name} for name in ("../base", "", "..", "a/b", "a\\b", "a\0", 3)),
        *({"rank": rank} for rank in (0, True, 1.5, 2**21)),
        *({"sha256": "0"}, {"token_rank": -1}, {"group_size": 0}, {"zero": 1}),
    ],
)
def test_another_header_is_refused(folder: Path, change: dict[str, Any]) -> None:
    change_header(folder, change)
    with pytest.raises(
        CheckpointError,
        match=r"weights of kind difference have a base \(the name of a folder\), its sha256",
    ):
        Checkpoint.load(folder)


def test_header_and_weights_must_agree(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    config, stored = (folder / CONFIG).read_text(), load_file(folder / WEIGHTS)
    change_header(folder, {"rank": 5})
    with pytest.raises(
        CheckpointError, match=r"has shape \(4, \d+\), config.json asks for \(5, \d+\)"
    ):
        Checkpoint.load(folder, unverified=True)
    (folder / CONFIG).write_text(config)
    left = next(name for name in stored if name.endswith(".left"))
    for wrong, message in (
        (
            {name: tensor for name, tensor in stored.items() if name != left},
            f"1 weights are missing, the first is '{left}'",
        ),
        (
            {name: tensor for name, tensor in stored.items() if "classify" not in name},
            "weights are missing, the first is 'heads",
        ),
        (stored | {"other": torch.zeros(1)}, "1 weights have no name here, the first is 'other'"),
        (stored | {left: stored[left].float()}, "is stored as F32, config.json asks for I8"),
    ):
        save_file(wrong, folder / WEIGHTS)
        with pytest.raises(CheckpointError, match=message):
            Checkpoint.load(folder, unverified=True)


def test_mutated_headers_end_in_a_clean_error(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    path = folder / WEIGHTS
    draw, weights = random.Random(7), path.read_bytes()
    header = 8 + int.from_bytes(weights[:8], "little")
    refused, cases = 0, 100
    for _ in range(cases):
        raw = bytearray(weights)
        for _ in range(draw.randint(1, 4)):
            raw[draw.randrange(header)] = draw.randrange(256)
        path.write_bytes(raw)
        try:
            Checkpoint.load(folder, unverified=True)
        except CheckpointError:
            refused += 1
    assert refused > 0.9 * cases


def change_header(folder: Path, change: dict[str, Any]) -> None:
    data = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(data | {"weights": data["weights"] | change}))
    (folder / MANIFEST).unlink(missing_ok=True)
