"""Our models as Hugging Face folders: they load there without a warning, compute the same, and come
back bit for bit."""

from dataclasses import replace

import pytest
import torch
import transformers

from litebert.config import LABELED_HEADS, PRESETS, HeadConfig, ModelConfig
from litebert.convert.huggingface import read_huggingface
from litebert.convert.huggingface_writer import to_huggingface
from litebert.model.model import Model
from tests.helpers.huggingface import (
    NAMES,
    converted,
    difference,
    foreign_model,
    inputs,
    our_outputs,
    randomize,
    their_outputs,
)

TINY = replace(PRESETS["tiny"], vocab_size=60)
BERT = replace(TINY, share="none", embedding_size=TINY.hidden_size)


def model(*kinds: str, encoder=TINY, dropout=0.0) -> Model:
    heads = tuple(
        HeadConfig(
            kind=kind,
            labels=("no", "yes", "naïve") if kind in LABELED_HEADS else (),
            dropout=dropout,
        )
        for kind in kinds
    )
    built = Model(ModelConfig(encoder=encoder, heads=heads)).eval()
    randomize(built)
    return built


def written(ours: Model, folder) -> tuple[str, tuple[str, ...]]:
    folder.mkdir(parents=True, exist_ok=True)
    exported = to_huggingface(ours.config, ours.state_dict())
    exported.write(folder)
    return exported.settings["architectures"][0], exported.notes


def loaded(name: str, folder):
    theirs, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return theirs.eval()


KINDS = [
    (),
    ("masked", "order"),
    ("masked",),
    ("classify",),
    ("multilabel",),
    ("regress",),
    ("tag",),
    ("span",),
    ("choose",),
]
SHAPES = {
    "albert": TINY,
    "bert": BERT,
    "bert of two layers a visit": replace(BERT, layers_per_group=2),
    "groups": replace(TINY, num_layers=5, num_groups=3, layers_per_group=2),
    "nothing shared": replace(TINY, share="none", layers_per_group=2),
    "E equal to H": replace(TINY, embedding_size=TINY.hidden_size),
    "E equal to H, hf_compat": replace(TINY, embedding_size=TINY.hidden_size, hf_compat=True),
    "erf": replace(TINY, activation="gelu_erf"),
    "relu": replace(BERT, activation="relu"),
}


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: "-".join(kinds) or "none")
@pytest.mark.parametrize("encoder", [TINY, BERT], ids=["albert", "bert"])
def test_every_head_loads_with_no_missing_and_no_unexpected_key(kinds, encoder, tmp_path):
    ours, batch = model(*kinds, encoder=encoder), inputs(padding="right")
    name, _ = written(ours, tmp_path)
    theirs = loaded(name, tmp_path)
    with torch.no_grad():
        assert difference(our_outputs(ours, batch), their_outputs(theirs, batch)) < 1e-5
    if ours.config.heads and ours.config.heads[0].labels:
        assert theirs.config.id2label == {0: "no", 1: "yes", 2: "naïve"}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_loads_and_agrees(shape, tmp_path):
    ours, batch = model("masked", "order", encoder=SHAPES[shape]), inputs(padding="left")
    name, _ = written(ours, tmp_path)
    with torch.no_grad():
        assert (
            difference(our_outputs(ours, batch), their_outputs(loaded(name, tmp_path), batch))
            < 1e-5
        )


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: "-".join(kinds) or "none")
@pytest.mark.parametrize("shape", ["albert", "bert", "groups", "E equal to H", "erf"])
def test_to_huggingface_and_back_is_bit_identical(kinds, shape, tmp_path):
    ours = model(*kinds, encoder=SHAPES[shape])
    written(ours, tmp_path)
    back = read_huggingface(tmp_path)
    expected = {
        name: tensor
        for name, tensor in ours.state_dict().items()
        if back.config.encoder.pooler or "pooler" not in name
    }
    assert back.weights.keys() == expected.keys()
    assert all(torch.equal(back.weights[name], tensor) for name, tensor in expected.items())
    assert replace(back.config.encoder, pooler=True) == ours.config.encoder
    assert back.config.heads == ours.config.heads


@pytest.mark.parametrize("name", NAMES)
def test_from_huggingface_and_back_is_bit_identical(name, tmp_path):
    theirs = foreign_model(
        name,
        **({"num_hidden_groups": 3, "inner_group_num": 2} if name.startswith("Albert") else {}),
    )
    ours = converted(theirs, tmp_path / "theirs")
    assert written(ours, tmp_path / "again")[0] == name
    before, after = theirs.state_dict(), loaded(name, tmp_path / "again").state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    ("change", "kinds", "reason"),
    [
        ({"share": "attention"}, (), "shares whole layers or none, and this encoder has share = a"),
        ({"share": "ffn"}, (), "this encoder has share = ffn"),
        ({"layers_per_group": 2, "cycle": "reversed"}, (), "no Albert with cycle = reversed"),
        ({"num_layers": 4, "unshared_ends": 1}, (), "no Albert with unshared_ends = 1"),
        ({"reversible": True, "norm": "pre"}, (), "no Albert with norm = pre"),
        ({"adapter_rank": 2}, (), "no Albert with adapter_rank = 2"),
        ({"positions": "rotary"}, (), "no Albert with positions = rotary"),
        ({"norm": "pre"}, (), "no Albert with norm = pre"),
        ({"num_layers": 36, "num_groups": 14}, (), "rounds 36 layers in 14 groups differently"),
        ({}, ("joint_span",), "no Albert with the heads joint_span"),
        ({}, ("order",), "no Albert with the heads order"),
        ({}, ("masked", "classify"), "no Albert with the heads classify and masked"),
    ],
)
def test_models_that_no_class_can_compute_get_a_modeling_file(change, kinds, reason, tmp_path):
    """test_custom_code.py compares what it computes."""
    ours = model(*kinds, encoder=replace(TINY, **change))
    name, notes = written(ours, tmp_path)
    assert name.startswith("Litebert")
    assert (tmp_path / "modeling_litebert.py").exists()
    assert len(notes) == 1
    assert reason in notes[0]
    assert notes[0].startswith("the folder has its own modeling_litebert.py: transformers ")
    assert "(models of the recipe affordable-post load as AlbertModel)" in notes[0]
    back = read_huggingface(tmp_path)
    assert back.config == ours.config
    assert all(torch.equal(back.weights[key], each) for key, each in ours.state_dict().items())


@pytest.mark.parametrize("encoder", [TINY, BERT], ids=["albert", "bert"])
def test_encoder_without_a_pooler_converts_both_ways(encoder, tmp_path):
    ours = model(encoder=replace(encoder, pooler=False))
    name, (note,) = written(ours, tmp_path)
    assert "add_pooling_layer=False" in note
    theirs, info = getattr(transformers, name).from_pretrained(
        tmp_path, add_pooling_layer=False, output_loading_info=True
    )
    assert not any(info.values()), info
    batch = inputs(padding="right")
    with torch.no_grad():
        (states,) = their_outputs(theirs.eval(), batch)
        assert difference([ours.encoder(**batch)], [states]) < 1e-5
    theirs.save_pretrained(tmp_path / "again")
    assert read_huggingface(tmp_path / "again").config == ours.config


def test_notes_say_what_differs_in_training(tmp_path):
    def notes(*kinds, **settings):
        ours = model(
            *kinds, encoder=replace(TINY, **settings), dropout=settings.pop("dropout", 0.0)
        )
        return " / ".join(to_huggingface(ours.config, ours.state_dict()).notes)

    assert notes("masked", "order") == ""
    assert "never applies the feed-forward dropout" in notes("masked", "order", ffn_dropout=0.1)
    assert notes("masked", "order", ffn_dropout=0.1, hf_compat=True) == ""
    assert "one hidden dropout; 0.2 of [0.0, 0.2]" in notes(
        "masked", "order", attention_output_dropout=0.2
    )
    assert "the pooler is left out: AlbertForMaskedLM" in notes("masked")
    assert "an identity was added" in notes(embedding_size=TINY.hidden_size)


def test_dropouts_are_converted(tmp_path):
    encoder = replace(
        BERT,
        embedding_dropout=0.2,
        attention_output_dropout=0.2,
        ffn_dropout=0.2,
        attention_dropout=0.3,
    )
    ours = model("classify", encoder=encoder, dropout=0.4)
    name, notes = written(ours, tmp_path)
    theirs = loaded(name, tmp_path)
    assert (
        theirs.dropout.p,
        theirs.config.hidden_dropout_prob,
        theirs.config.attention_probs_dropout_prob,
    ) == (0.4, 0.2, 0.3)
    assert read_huggingface(tmp_path).config == ours.config
    assert notes == ()


def test_exits_are_left_out_with_a_note():
    config = model("classify").config
    heads = tuple(replace(head, exits="each") for head in config.heads)
    ours = Model(replace(config, heads=heads))
    exported = to_huggingface(ours.config, ours.state_dict())
    assert exported.notes[-1] == "the exits are left out: transformers always applies all layers"
    last = {name: each for name, each in ours.state_dict().items() if "exits." not in name}
    assert exported.weights.keys() == to_huggingface(config, last).weights.keys()
