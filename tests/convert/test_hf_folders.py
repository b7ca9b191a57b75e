"""Hugging Face folders as they are in the wild, and as an enemy would write them: read rightly, or
refused with the reason."""

import json
import random
import shutil
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.convert.huggingface import read_huggingface
from litebert.convert.unpickle import unpickle
from litebert.errors import ConversionError
from tests.helpers.huggingface import JUNK, foreign_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders of transformers by class, written once."""
    root, written = tmp_path_factory.mktemp("saved"), {}

    def folder(name: str, **settings):
        key = f"{name}{settings}"
        if key not in written:
            written[key] = root / str(len(written))
            foreign_model(name, **settings).save_pretrained(written[key])
        return written[key]

    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy that a test may damage."""

    def copy(name: str = "AlbertForMaskedLM", **settings):
        return shutil.copytree(saved(name, **settings), tmp_path / "model")

    return copy


def edit_config(path, **changes):
    data = json.loads((path / "config.json").read_text())
    data.update(changes)
    (path / "config.json").write_text(
        json.dumps({key: value for key, value in data.items() if value is not ...})
    )
    return path


def edit_weights(path, change):
    weights = load_file(path / "model.safetensors")
    change(weights)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def notes(path, **options) -> str:
    return " / ".join(read_huggingface(path, **options).notes)


# ---- as in the wild


def test_released_files_hold_more_than_their_class_says(saved, tmp_path):
    """albert-base-v2 is an AlbertForMaskedLM and has a pooler; bert-base-uncased a BertForMaskedLM
    and has an order head."""
    for name, kinds in (("Albert", ["masked", "order"]), ("Bert", ["masked", "order"])):
        path = shutil.copytree(saved(f"{name}ForPreTraining"), tmp_path / name)
        imported = read_huggingface(edit_config(path, architectures=[f"{name}ForMaskedLM"]))
        assert [head.kind for head in imported.config.heads] == kinds
        assert imported.config.encoder.pooler


def test_old_spellings_buffers_and_extra_keys(folder):
    path = folder("BertForPreTraining")

    def age(weights):
        for name in [name for name in weights if "LayerNorm" in name]:
            weights[name.replace(".weight", ".gamma").replace(".bias", ".beta")] = weights.pop(name)
        weights["bert.embeddings.position_ids"] = torch.arange(32)[None]
        weights["cls.predictions.decoder.weight"] = weights[
            "bert.embeddings.word_embeddings.weight"
        ].clone()
        weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"].clone()

    expected = read_huggingface(path)
    edit_config(
        edit_weights(path, age),
        net_structure_type=0,
        gap_size=0,
        num_memory_blocks=0,
        layers_to_keep=[],
        down_scale_factor=1,
    )
    imported = read_huggingface(path)
    assert imported.config == expected.config
    assert all(
        torch.equal(imported.weights[name], tensor) for name, tensor in expected.weights.items()
    )
    assert "embeddings.position_ids is a buffer that counts positions; left out" in imported.notes


def test_encoder_saved_under_its_prefix(folder):
    path = folder("AlbertModel")
    expected = read_huggingface(path)
    edit_weights(
        path,
        lambda weights: weights.update(
            {f"albert.{name}": weights.pop(name) for name in list(weights)}
        ),
    )
    assert all(
        torch.equal(read_huggingface(path).weights[name], tensor)
        for name, tensor in expected.weights.items()
    )


def test_class_is_read_from_the_weights_where_the_config_is_silent(folder):
    path = edit_config(folder("AlbertForPreTraining"), architectures=...)
    assert [head.kind for head in read_huggingface(path).config.heads] == ["masked", "order"]


def test_half_precision_is_widened_exactly(folder):
    path = folder("AlbertModel")
    edit_weights(
        path,
        lambda weights: weights.update({name: tensor.half() for name, tensor in weights.items()}),
    )
    imported = read_huggingface(path)
    assert "F16 were widened to float32" in " ".join(imported.notes)
    stored = load_file(path / "model.safetensors")
    assert torch.equal(imported.weights["encoder.pooler.weight"].half(), stored["pooler.weight"])
    assert {tensor.dtype for tensor in imported.weights.values()} == {torch.float32}


def test_gelu_of_v1_configs(saved):
    path = saved("AlbertModel", hidden_act="gelu")
    assert "with the tanh form: add --activation gelu_tanh" in notes(path)
    assert read_huggingface(path).config.encoder.activation == "gelu_erf"
    assert read_huggingface(path, activation="gelu_tanh").config.encoder.activation == "gelu_tanh"
    assert notes(path, activation="gelu_tanh") == ""
    assert notes(saved("BertModel", hidden_act="gelu")) == ""  # BERT was trained so


def test_compat_is_kept_only_where_the_weights_need_it(saved):
    plain = read_huggingface(saved("AlbertForPreTraining")).config
    assert not plain.encoder.hf_compat
    assert plain.heads[1].dropout == 0.0  # Google's order head has none
    config = read_huggingface(saved("AlbertForPreTraining"), hf_compat=True).config
    assert config.encoder.hf_compat
    assert config.heads[1].dropout == 0.1
    mapped = saved("AlbertModel", embedding_size=24)
    assert read_huggingface(mapped).config.encoder.hf_compat
    assert "hf_compat is on, because Hugging Face's mapping of E to H" in notes(mapped)
    rounded = saved("AlbertModel", num_hidden_layers=36, num_hidden_groups=14)
    assert read_huggingface(rounded).config.encoder.hf_compat
    assert "rounding of layers to groups" in notes(rounded)


def test_sharded_weights(saved, folder):
    path = folder("AlbertForMaskedLM")
    weights = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    weight_map = {
        name: f"model-{position % 3 + 1:05d}-of-00003.safetensors"
        for position, name in enumerate(sorted(weights))
    }
    for file in set(weight_map.values()):
        save_file(
            {name: weights[name] for name in weights if weight_map[name] == file}, path / file
        )
    index = path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    expected = read_huggingface(saved("AlbertForMaskedLM")).weights
    assert all(
        torch.equal(tensor, expected[name])
        for name, tensor in read_huggingface(path).weights.items()
    )

    save_file({name: weights[name] for name in weights}, path / "model-00001-of-00003.safetensors")
    with pytest.raises(ConversionError, match="a second time"):
        read_huggingface(path)
    (path / "model-00001-of-00003.safetensors").unlink()
    with pytest.raises(ConversionError, match=r"model-00001-of-00003\.safetensors .*is not there"):
        read_huggingface(path)
    for weight_map, message in (
        ({"a": "../../etc/passwd"}, "only files of the same folder"),
        ([], "weight_map"),
        ({}, "weight_map"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(ConversionError, match=message):
            read_huggingface(path)


def test_pickle_only_when_allowed_and_only_tensors(saved, folder):
    path = folder("AlbertForMaskedLM")
    weights = load_file(path / "model.safetensors")
    weights["predictions.decoder.weight"] = weights[
        "albert.embeddings.word_embeddings.weight"
    ]  # tied, as there
    (path / "model.safetensors").unlink()
    torch.save(weights, path / "pytorch_model.bin")
    with pytest.raises(ConversionError, match="add --allow-pickle"):
        read_huggingface(path)
    expected = read_huggingface(saved("AlbertForMaskedLM")).weights
    imported = read_huggingface(path, allow_pickle=True).weights
    assert all(torch.equal(imported[name], tensor) for name, tensor in expected.items())


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_hostile_pickles_are_refused_and_do_nothing(folder, tmp_path):
    path = folder("AlbertForMaskedLM")
    (path / "model.safetensors").unlink()
    torch.save({"a": Bomb(tmp_path / "harm")}, path / "pytorch_model.bin")
    with pytest.raises(ConversionError, match="cannot be read as a pickle of tensors alone"):
        read_huggingface(path, allow_pickle=True)
    assert not (tmp_path / "harm").exists()
    torch.save([1, 2], path / "pytorch_model.bin")
    with pytest.raises(SystemExit, match="should hold a dict of tensors"):
        unpickle(str(path / "pytorch_model.bin"), str(tmp_path / "target"))


# ---- refused


ALBERT, CLASSIFIER = "AlbertModel", "AlbertForSequenceClassification"
ABSURD = {"num_hidden_layers": 999, "num_hidden_groups": 999, "inner_group_num": 64}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (ALBERT, {"model_type": "roberta", "architectures": ["RobertaModel"]}, "known classes are"),
        (
            ALBERT,
            {"model_type": "gpt2", "architectures": None},
            "model type 'gpt2'; known are albert and bert",
        ),
        (ALBERT, {"model_type": "bert"}, "they do not match"),
        (ALBERT, {"architectures": ["AlbertModel", "AlbertForMaskedLM"]}, "known classes"),
        (ALBERT, {"architectures": {"a": 1}}, "known classes"),
        (ALBERT, {"hidden_act": "swish"}, "hidden_act = 'swish'; known are gelu_new"),
        (ALBERT, {"hidden_act": ["gelu"]}, "hidden_act ="),
        (ALBERT, {"num_attention_heads": 5}, "multiple of num_attention_heads"),
        (ALBERT, {"vocab_size": 10**15}, "vocab_size is a whole number"),
        (ALBERT, {"hidden_size": "24"}, "hidden_size is a whole number"),
        (
            ALBERT,
            {"vocab_size": 1_999_999},
            "shape \\[60, 12\\], the config asks for \\[1999999, 12\\]",
        ),
        (ALBERT, ABSURD, "asks for 63936 layers"),
        (ALBERT, {"inner_group_num": 2}, "weights are missing, the first is"),
        (ALBERT, {"hidden_dropout_prob": 2}, "dropout is a number"),
        (
            "BertModel",
            {"position_embedding_type": "relative_key"},
            "position_embedding_type = 'relative_key'",
        ),
        ("BertModel", {"is_decoder": True}, "is_decoder = True"),
        (
            "BertModel",
            {"num_hidden_layers": 2},
            "weights have no name here, the first is 'encoder.layer.2",
        ),
        (
            "AlbertForMaskedLM",
            {"tie_word_embeddings": False},
            "predictions.decoder.weight is missing",
        ),
        (CLASSIFIER, {"architectures": ["AlbertModel"]}, "and the config names AlbertModel"),
        (CLASSIFIER, {"architectures": None}, "hold a classifier, and the config names no class"),
        (CLASSIFIER, {"problem_type": "regression"}, "no such head"),
        (CLASSIFIER, {"id2label": {"0": "a", "2": "b"}}, "without a gap"),
        (CLASSIFIER, {"id2label": ["a"]}, "without a gap"),
        (CLASSIFIER, {"num_labels": -1}, "num_labels = -1"),
        (CLASSIFIER, {"num_labels": 7}, "classifier.weight has shape"),
        ("AlbertForQuestionAnswering", {"num_labels": 3}, "span head has 2 outputs here"),
    ],
)
def test_configs_that_do_not_fit(folder, name, changes, message):
    with pytest.raises(ConversionError, match=message):
        read_huggingface(edit_config(folder(name), **changes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w.update(surprise=torch.ones(1)),
            "1 weights have no name here, the first is 'surprise'",
        ),
        (
            lambda w: w.pop("predictions.bias"),
            "1 weights are missing, the first is 'predictions.bias'",
        ),
        (
            lambda w: w.update({"predictions.bias": torch.ones(61)}),
            "predictions.bias has shape \\[61\\]",
        ),
        (
            lambda w: w.update({"predictions.bias": torch.ones(60).double()}),
            "predictions.bias is stored as F64",
        ),
        (
            lambda w: w.update({"predictions.bias": torch.ones(60).int()}),
            "predictions.bias is stored as I32",
        ),
        (
            lambda w: w.update({"predictions.decoder.weight": torch.ones(60, 12)}),
            "not tied to the embedding",
        ),
        (
            lambda w: w.update({"predictions.decoder.bias": torch.ones(60)}),
            "predictions.decoder.bias differs from",
        ),
        (lambda w: w.update({"embeddings.LayerNorm.gamma": torch.ones(12)}), "under two names"),
    ],
)
def test_weights_that_do_not_fit(folder, change, message):
    with pytest.raises(ConversionError, match=message):
        read_huggingface(edit_weights(folder("AlbertForMaskedLM"), change))


def test_damaged_and_missing_files(folder):
    path = folder("AlbertModel")
    data = (path / "model.safetensors").read_bytes()
    for size in (0, 7, 100, len(data) // 2, len(data) - 1):
        (path / "model.safetensors").write_bytes(data[:size])
        with pytest.raises(ConversionError, match="truncated or damaged"):
            read_huggingface(path)
    (path / "model.safetensors").unlink()
    with pytest.raises(
        ConversionError, match=r"has no model\.safetensors \(nor pytorch_model\.bin\)"
    ):
        read_huggingface(path)
    for text, message in (
        ("{", "cannot be read as JSON"),
        ("[]", "should hold a JSON object"),
        ("[" * 100_000, "as JSON"),
    ):
        (path / "config.json").write_text(text)
        with pytest.raises(ConversionError, match=message):
            read_huggingface(path)
    (path / "config.json").unlink()
    with pytest.raises(ConversionError, match=r"has no config\.json"):
        read_huggingface(path)


def test_mutated_configs_and_headers_end_in_a_clean_error(folder):
    path, random_ = folder("AlbertForPreTraining"), random.Random(5)
    config, weights = (path / "config.json").read_text(), (path / "model.safetensors").read_bytes()
    keys = [
        *json.loads(config),
        "id2label",
        "num_labels",
        "problem_type",
        "position_embedding_type",
    ]
    slowest, refused, cases = 0.0, 0, 1500
    for case in range(cases):
        data, raw = json.loads(config), bytearray(weights)
        if case % 2:
            for key in random_.sample(keys, random_.randint(1, 3)):
                data[key] = random_.choice(JUNK)
        else:
            for _ in range(random_.randint(1, 4)):
                raw[random_.randrange(3000)] = random_.randrange(256)
        (path / "config.json").write_text(json.dumps(data))
        (path / "model.safetensors").write_bytes(raw)
        start = time.process_time()
        try:
            read_huggingface(path)
        except ConversionError:
            refused += 1
        slowest = max(slowest, time.process_time() - start)
    assert refused > 0.75 * cases
    assert slowest < 10  # CPU seconds; it would be minutes
