"""An int8 checkpoint is named so in its header, small, verified, or refused with the reason."""

import json
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.files import MANIFEST
from litebert.model.model import Model, bare_model
from litebert.storage import int8
from litebert.storage.checkpoint import CONFIG, WEIGHTS, Checkpoint, read_config
from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer

HEADS = (HeadConfig(kind="masked"), HeadConfig(kind="order"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    torch.manual_seed(0)
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))
    encoder = replace(
        PRESETS["tiny"],
        num_groups=2,
        norm="pre",
        vocab_size=tokenizer.vocab_size,
        embedding_size=24,
    )
    return Checkpoint(model=Model(ModelConfig(encoder=encoder, heads=HEADS)), tokenizer=tokenizer)


@pytest.fixture
def folder(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    return checkpoint.save(tmp_path / "small", weights="int8")


def test_loading_returns_the_dequantized_weights(
    checkpoint: Checkpoint, folder: Path, tmp_path: Path
) -> None:
    loaded = Checkpoint.load(folder)
    assert loaded.model.config == checkpoint.model.config == read_config(folder)
    assert not loaded.model.training
    exact = checkpoint.model.state_dict()
    for name, tensor in int8.unpack(int8.pack(exact, int8.GROUP_SIZE), int8.GROUP_SIZE).items():
        weight = loaded.model.state_dict()[name]
        assert weight.dtype == torch.float32
        assert torch.equal(weight, tensor), name
    # Saving what was loaded loses nothing more, in 8 bits and as it is.
    again = loaded.save(tmp_path / "again", weights="int8")
    assert (again / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()
    plain = Checkpoint.load(loaded.save(tmp_path / "plain")).model.state_dict()
    assert all(
        torch.equal(tensor, plain[name]) for name, tensor in loaded.model.state_dict().items()
    )
    assert "weights" not in json.loads((tmp_path / "plain" / CONFIG).read_text())


def test_tokenizer_json_is_left_out_and_can_be_written_again(
    checkpoint: Checkpoint, folder: Path, tmp_path: Path
) -> None:
    assert not (folder / "tokenizer.json").exists()
    loaded = Checkpoint.load(folder)
    assert loaded.tokenizer is not None
    assert checkpoint.tokenizer is not None
    assert loaded.tokenizer.fingerprint == checkpoint.tokenizer.fingerprint
    loaded.save(tmp_path / "again")
    checkpoint.save(tmp_path / "plain")
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (
        tmp_path / "plain" / "tokenizer.json"
    ).read_bytes()


def test_another_dtype_on_request(folder: Path) -> None:
    model = Checkpoint.load(folder, dtype=torch.bfloat16).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_albert_base_with_a_vocabulary_of_30000_fits_into_14_megabytes() -> None:
    config = ModelConfig(encoder=PRESETS["albert-base-v2"], heads=HEADS)
    shapes = {name: tuple(tensor.shape) for name, tensor in bare_model(config).state_dict().items()}
    width = {"I8": 1, "BF16": 2, "F32": 4}
    stored = int8.layout(shapes, int8.GROUP_SIZE)
    weights = sum(width[kind] * torch.Size(shape).numel() for kind, shape in stored.values())
    vocabulary = 800_000  # of ALBERT's own spiece.model, 760,289 bytes
    assert weights + vocabulary + 50_000 < 14_000_000


def test_an_unknown_storage_and_infinite_weights_are_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError, match="weights is one of exact, bfloat16, int8, or a Difference; got 'int4'"
    ):
        checkpoint.save(tmp_path / "m", weights="int4")  # type: ignore[arg-type]
    checkpoint.model.encoder.embedding.norm.bias.data[3] = float("inf")
    wrong = r"encoder\.embedding\.norm\.bias holds numbers that are not finite; was the run healthy"
    for weights in ("int8", "bfloat16"):
        with pytest.raises(CheckpointError, match=wrong):
            checkpoint.save(tmp_path / "m", weights=weights)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "header",
    [
        None,
        "int8",
        {},
        {"kind": "int8"},
        {"kind": "int4", "group_size": 64},
        {"kind": "int8", "group_size": 0},
    ]
    + [{"kind": "int8", "group_size": size} for size in (True, "64", 1.5, 2**21)]
    + [{"kind": "int8", "group_size": 64, "zero": 1}],
)
def test_another_header_is_refused(folder: Path, header: object) -> None:
    data = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(data | {"weights": header}))
    with pytest.raises(
        CheckpointError, match="weights is of kind int8, with a group_size from 1 to 1048576; got"
    ):
        Checkpoint.load(folder)


def test_header_and_weights_must_agree(
    checkpoint: Checkpoint, folder: Path, tmp_path: Path
) -> None:
    plain = checkpoint.save(tmp_path / "plain")
    header = json.loads((folder / CONFIG).read_text())["weights"]
    for path in (folder, plain):
        (path / MANIFEST).unlink()
    data = json.loads((plain / CONFIG).read_text())
    (plain / CONFIG).write_text(json.dumps(data | {"weights": header}))
    with pytest.raises(CheckpointError, match=r"weights are missing, the first is '.*\.scales'"):
        Checkpoint.load(plain, unverified=True)
    (folder / CONFIG).write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="they do not belong together"):
        Checkpoint.load(folder, unverified=True)
    (folder / CONFIG).write_text(json.dumps(data | {"weights": header | {"group_size": 8}}))
    with pytest.raises(
        CheckpointError, match=r"scales has shape \(\d+, 1\), config.json asks for \(\d+, [234]\)"
    ):
        Checkpoint.load(folder, unverified=True)
    (folder / CONFIG).write_text(json.dumps(data | {"weights": header}))
    stored = load_file(folder / WEIGHTS)
    name = "encoder.embedding.token.weight"
    save_file(stored | {name: stored[name].float()}, folder / WEIGHTS)
    with pytest.raises(
        CheckpointError, match=r"token\.weight is stored as F32, config.json asks for I8"
    ):
        Checkpoint.load(folder, unverified=True)


def test_damage_is_refused(folder: Path) -> None:
    raw = bytearray((folder / WEIGHTS).read_bytes())
    raw[-3] ^= 1
    (folder / WEIGHTS).write_bytes(raw)
    with pytest.raises(CheckpointError, match="does not have the sha256"):
        Checkpoint.load(folder)


def test_mutated_headers_end_in_a_clean_error(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / "spiece.model").unlink()  # fuzzed elsewhere
    draw, weights = random.Random(7), (folder / WEIGHTS).read_bytes()
    header = 8 + int.from_bytes(weights[:8], "little")
    slowest, refused, cases = 0.0, 0, 2000
    for _ in range(cases):
        raw = bytearray(weights)
        for _ in range(draw.randint(1, 4)):
            raw[draw.randrange(header)] = draw.randrange(256)
        (folder / WEIGHTS).write_bytes(raw)
        begun = time.process_time()
        try:
            Checkpoint.load(folder, unverified=True)
        except CheckpointError:
            refused += 1
        slowest = max(slowest, time.process_time() - begun)
    assert refused > 0.9 * cases
    assert slowest < 10  # CPU seconds; it would be minutes


def test_a_group_of_any_size_allocates_no_more_than_the_weights(checkpoint: Checkpoint) -> None:
    weight = torch.zeros(16, 3)
    numbers, scales = int8.quantize(weight, 2**20)
    assert scales.shape == (16, 1)
    assert int8.dequantize(numbers, scales, 2**20).shape == weight.shape
