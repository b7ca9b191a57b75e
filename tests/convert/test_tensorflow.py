"""Google's checkpoints: they compute what transformers computes with the same arrays; forks and
leftovers are refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.convert.bundle import Bundle
from litebert.convert.names import foreign_names
from litebert.convert.tensorflow import read_google
from litebert.errors import ConversionError
from litebert.model.model import Model
from tests.helpers.bundles import write_bundle
from tests.helpers.huggingface import difference, inputs, our_outputs, their_outputs

GOOGLE = Path(__file__).parent / "fixtures" / "google"
PREFIX = GOOGLE / "model.ckpt-best"
TINY = PRESETS["tiny"]
CONFIG = {
    "vocab_size": TINY.vocab_size,
    "embedding_size": TINY.embedding_size,
    "hidden_size": TINY.hidden_size,
    "num_hidden_layers": TINY.num_layers,
    "num_attention_heads": TINY.num_attention_heads,
    "intermediate_size": TINY.ffn_size,
    "max_position_embeddings": TINY.max_positions,
    "hidden_act": "gelu",
}


def theirs_from(bundle: Bundle):
    """A model of transformers filled by hand from the arrays of Google's names, without our
    table."""
    config = json.loads((GOOGLE / "albert_config.json").read_text())
    model = transformers.AlbertForPreTraining(
        transformers.AlbertConfig(**{**config, "hidden_act": "gelu_new"})
    ).eval()
    ends = {
        "kernel": "weight",
        "gamma": "weight",
        "beta": "bias",
        "output_weights": "weight",
        "output_bias": "bias",
    }
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            path = name.removesuffix(".weight").removesuffix(".bias").removeprefix("albert.")
            for old, new in (
                ("embeddings.", "bert/embeddings/"),
                ("encoder.embedding_hidden_mapping_in", "bert/encoder/embedding_hidden_mapping_in"),
                ("pooler", "bert/pooler/dense"),
                ("predictions.", "cls/predictions/transform/"),
                ("sop_classifier.classifier", "cls/seq_relationship"),
                ("encoder.albert_layer_groups.", "bert/encoder/transformer/group_"),
                (".albert_layers.", "/inner_group_"),
                (".attention.LayerNorm", "/LayerNorm"),
                (".attention.dense", "/attention_1/output/dense"),
                (".attention.", "/attention_1/self/"),
                (".full_layer_layer_norm", "/LayerNorm_1"),
                (".ffn_output", "/ffn_1/intermediate/output/dense"),
                (".ffn", "/ffn_1/intermediate/dense"),
            ):
                path = path.replace(old, new)
            if name == "predictions.bias":
                path = "cls/predictions"
            end = "weight" if name.endswith("weight") else "bias"
            choices = [
                f"{path}/{old}" for old, new in {**ends, "bias": "bias"}.items() if new == end
            ] + [path]
            (imported,) = [choice for choice in choices if choice in bundle]
            array = torch.from_numpy(bundle[imported])
            parameter.copy_(array.T if imported.endswith("kernel") else array)
    return model


def test_equals_transformers_with_the_same_arrays():
    ours, theirs = read_google(PREFIX).model(), theirs_from(Bundle(PREFIX))
    assert list(ours.heads) == ["masked", "order"]
    for padding in ("none", "left", "right"):
        batch = inputs(vocab=30, padding=padding)
        with torch.no_grad():
            assert difference(our_outputs(ours, batch), their_outputs(theirs, batch)) < 1e-5


def test_config_and_notes_of_the_fixture():
    imported = read_google(str(PREFIX))
    assert imported.config.encoder.activation == "gelu_tanh"  # what Google's code calls gelu
    assert (imported.config.encoder.num_groups, imported.config.encoder.layers_per_group) == (2, 2)
    assert imported.config.encoder.ffn_dropout == 0.1
    assert imported.notes == ("161 tensors of the optimizer and its step were left out",)
    assert read_google(PREFIX, activation="gelu_erf").config.encoder.activation == "gelu_erf"


def written(
    folder: Path,
    *kinds: str,
    prefix: str = "",
    change=lambda arrays: None,
    config=CONFIG,
    encoder=TINY,
) -> tuple[Path, Model]:
    """Our model as Google's fine-tuning would have written it, through the table of names."""
    heads = tuple(
        HeadConfig(kind=kind, labels=("a", "b", "c") if kind == "classify" else ())
        for kind in kinds
    )
    model = Model(ModelConfig(encoder=encoder, heads=heads)).eval()
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    names = foreign_names(model.config, "google")
    arrays = {
        prefix + f.name: np.ascontiguousarray(weights[o].T if f.transposed else weights[o])
        for o, f in names.items()
    }
    arrays["global_step"] = np.array(3)
    change(arrays)
    folder.mkdir(exist_ok=True)
    (folder / "albert_config.json").write_text(json.dumps(config))
    return write_bundle(folder / "model.ckpt-3", arrays), model


@pytest.mark.parametrize("kind", ["classify", "regress", "span", "joint_span"])
@pytest.mark.parametrize("prefix", ["", "module/"])
def test_fine_tuned_heads(tmp_path, kind, prefix):
    path, model = written(tmp_path, kind, prefix=prefix)
    imported = read_google(path)
    assert [head.kind for head in imported.config.heads] == [kind]
    assert all(
        torch.equal(imported.weights[name], tensor) for name, tensor in model.state_dict().items()
    )
    assert imported.config.heads[0].dropout == (0.0 if kind == "span" else 0.1)


def test_one_output_is_regression_or_choice_as_the_user_says(tmp_path):
    path, _ = written(tmp_path, "choose")
    assert read_google(path).config.heads[0].kind == "regress"
    assert "add --head choose if it comes from RACE" in read_google(path).notes[0]
    assert read_google(path, head="choose").config.heads[0].kind == "choose"
    with pytest.raises(ConversionError, match="of classify, regress or choose; got head = span"):
        read_google(path, head="span")
    with pytest.raises(ConversionError, match="has no output_weights"):
        read_google(PREFIX, head="choose")


def test_no_mapping_where_e_equals_h(tmp_path):
    encoder = replace(TINY, embedding_size=TINY.hidden_size)
    path, model = written(
        tmp_path, "masked", encoder=encoder, config={**CONFIG, "embedding_size": TINY.hidden_size}
    )
    imported = read_google(path)
    assert "encoder.embedding.mapping.weight" not in imported.weights
    assert all(
        torch.equal(imported.weights[name], tensor) for name, tensor in model.state_dict().items()
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {
                "bert/encoder/transformer/group_0_2/layer_2/inner_group_0/"
                "layer_normalization_5/gamma": np.ones(3, np.float32)
            },
            "layer norms are not shared: it comes from a fork",
        ),
        ({"model/layer-0/.ATTRIBUTES/VARIABLE_VALUE": np.ones(3, np.float32)}, "object-based"),
        (
            {"bert/encoder/layer_0/output/dense/kernel": np.ones((3, 3), np.float32)},
            "holds Google's BERT",
        ),
        ({"surprise": np.ones(3, np.float32)}, "no name here, the first is 'surprise'"),
        (
            {"bert/pooler/dense/bias": np.ones(3, np.float32)},
            "shape \\[3\\], the config asks for \\[32\\]",
        ),
        ({"bert/pooler/dense/bias": np.ones(32, np.float64)}, "stored as F64"),
        ({"bert/pooler/dense/bias": np.ones(32, np.int32)}, "stored as I32"),
        ({"module/bert/pooler/dense/bias": np.ones(32, np.float32)}, "twice, once under 'module/'"),
        (
            {"bert/pooler/dense/bias": None},
            "1 weights are missing, the first is 'bert/pooler/dense/bias'",
        ),
    ],
)
def test_refused(tmp_path, change, message):
    def apply(arrays):
        arrays.update(change)
        for name in [name for name, array in arrays.items() if array is None]:
            del arrays[name]

    with pytest.raises(ConversionError, match=message):
        read_google(written(tmp_path, "masked", change=apply)[0])


def test_config_beside_the_checkpoint(tmp_path):
    for file in GOOGLE.glob("model.ckpt-best.*"):
        shutil.copy(file, tmp_path)
    with pytest.raises(ConversionError, match=r"has no albert_config\.json"):
        read_google(tmp_path / "model.ckpt-best")
    (tmp_path / "albert_config.json").write_text("{")
    with pytest.raises(ConversionError, match="cannot be read as JSON"):
        read_google(tmp_path / "model.ckpt-best")
    data = json.loads((GOOGLE / "albert_config.json").read_text())
    for changes, message in (
        ({"hidden_act": "swish"}, "hidden_act = 'swish'; known are gelu, relu"),
        ({"num_hidden_groups": 4, "inner_group_num": 60}, "asks for 240 layers"),
        ({"num_hidden_groups": 4}, "weights are missing"),
        ({"vocab_size": 31}, "shape \\[30, 4\\], the config asks for \\[31, 4\\]"),
    ):
        (tmp_path / "albert_config.json").write_text(json.dumps(data | changes))
        with pytest.raises(ConversionError, match=message):
            read_google(tmp_path / "model.ckpt-best")


def test_half_precision_checkpoint(tmp_path):
    def half(arrays):
        for name in arrays:
            if name != "global_step":
                arrays[name] = arrays[name].astype(np.float16)

    path, model = written(tmp_path, "masked", change=half)
    imported = read_google(path).weights["encoder.pooler.weight"]
    assert torch.equal(imported, model.state_dict()["encoder.pooler.weight"].half().float())
