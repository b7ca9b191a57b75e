"""A converted model computes what transformers computes: in float32 to 1e-5, in bfloat16 with no
larger error than theirs."""

import copy

import pytest
import torch
import transformers

from litebert.convert.names import foreign_names
from litebert.convert.settings import DEFAULTS
from tests.helpers.huggingface import (
    ALBERT,
    NAMES,
    converted,
    difference,
    foreign_model,
    inputs,
    our_outputs,
    their_outputs,
)

ODD = {
    "groups 2": {"num_hidden_layers": 4, "num_hidden_groups": 2},
    "groups 3": {"num_hidden_layers": 6, "num_hidden_groups": 3},
    "groups that do not divide": {"num_hidden_layers": 5, "num_hidden_groups": 3},
    "groups rounded otherwise": {
        "num_hidden_layers": 36,
        "num_hidden_groups": 14,
        "hidden_size": 12,
        "embedding_size": 6,
    },
    "two layers per group": {"num_hidden_groups": 3, "inner_group_num": 2},
    "E equal to H": {"embedding_size": 24},
    "E larger than H": {"embedding_size": 36},
    "erf": {"hidden_act": "gelu"},
    "relu": {"hidden_act": "relu"},
    "other tanh": {"hidden_act": "gelu_pytorch_tanh"},
    "one head": {"num_attention_heads": 1},
    "epsilon": {"layer_norm_eps": 1e-3},
    "three segments": {"type_vocab_size": 3},
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_every_class(name, padding, tmp_path):
    theirs = foreign_model(name, **({"num_labels": 3} if "Classification" in name else {}))
    ours, batch = converted(theirs, tmp_path), inputs(padding=padding)
    with torch.no_grad():
        assert difference(our_outputs(ours, batch), their_outputs(theirs, batch)) < 1e-5


@pytest.mark.parametrize("odd", ODD)
def test_odd_settings(odd, tmp_path):
    theirs = foreign_model("AlbertForPreTraining", **ODD[odd])
    ours, batch = converted(theirs, tmp_path), inputs(padding="right")
    with torch.no_grad():
        assert difference(our_outputs(ours, batch), their_outputs(theirs, batch)) < 1e-5


@pytest.mark.parametrize("name", ["AlbertModel", "BertModel"])
@pytest.mark.parametrize("seq", [1, 512])
def test_shortest_and_longest_input(name, seq, tmp_path):
    theirs = foreign_model(name, max_position_embeddings=512)
    ours, batch = converted(theirs, tmp_path), inputs(seq=seq, batch=2, padding="right")
    with torch.no_grad():
        assert difference(our_outputs(ours, batch), their_outputs(theirs, batch)) < 1e-5


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["AlbertModel", "BertModel"])
def test_a_row_of_padding_alone_does_not_affect_the_others(name, attention, tmp_path):
    theirs = foreign_model(name)
    theirs.set_attn_implementation(attention)
    ours, batch = converted(theirs, tmp_path), inputs(padding="row")
    with torch.no_grad():
        actual, expected = our_outputs(ours, batch), their_outputs(theirs, batch)
    assert all(torch.isfinite(tensor).all() for tensor in actual)
    assert (
        difference([tensor[:-1] for tensor in actual], [tensor[:-1] for tensor in expected]) < 1e-5
    )


@pytest.mark.parametrize(
    "name", ["AlbertForSequenceClassification", "BertForSequenceClassification"]
)
@pytest.mark.parametrize(
    "settings", [{"num_labels": 1}, {"num_labels": 1, "problem_type": "regression"}]
)
def test_regression(name, settings, tmp_path):
    theirs = foreign_model(name, **settings)
    ours, batch = converted(theirs, tmp_path), inputs()
    assert list(ours.heads) == ["regress"]
    with torch.no_grad():
        assert difference(our_outputs(ours, batch), their_outputs(theirs, batch)) < 1e-5


@pytest.mark.parametrize(
    "name", ["AlbertForSequenceClassification", "BertForSequenceClassification"]
)
def test_several_labels(name, tmp_path):
    theirs = foreign_model(name, num_labels=3, problem_type="multi_label_classification")
    ours, batch = converted(theirs, tmp_path), inputs()
    assert list(ours.heads) == ["multilabel"]
    with torch.no_grad():
        assert difference(our_outputs(ours, batch), their_outputs(theirs, batch)) < 1e-5


def test_the_comparison_can_fail(tmp_path):
    """The same weights with another activation, or another mask, are far outside of the
    tolerance."""
    theirs, batch = foreign_model("AlbertModel", hidden_act="gelu"), inputs(padding="right")
    ours = converted(theirs, tmp_path, activation="gelu_tanh")
    with torch.no_grad():
        expected = their_outputs(theirs, batch)
        assert difference(our_outputs(ours, batch), expected) > 1e-4
        ours = converted(theirs, tmp_path)
        assert (
            difference(
                our_outputs(ours, {**batch, "mask": torch.ones_like(batch["mask"])}), expected
            )
            > 1e-4
        )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["AlbertForPreTraining", "BertForPreTraining"])
def test_bfloat16_errs_no_more_than_theirs(name, attention, tmp_path):
    """Truth is theirs in float64 with the weights that bfloat16 holds, so that only the arithmetic
    is compared.

    One random model is a matter of luck, since its few weights are reused in every layer; eight are
    a fair test.
    """
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 4, "vocab_size": 60}
    squares = []
    for seed in range(8):
        theirs = foreign_model(name, seed=seed, **sizes).bfloat16()
        theirs.set_attn_implementation(attention)
        truth = copy.deepcopy(theirs).double()
        ours = converted(theirs, tmp_path / str(seed)).bfloat16()
        batch = inputs(batch=8, seq=24, padding="right", seed=seed)
        with torch.no_grad():
            outputs = zip(
                our_outputs(ours, batch),
                their_outputs(theirs, batch),
                their_outputs(truth, batch),
                strict=True,
            )
        squares.append(
            [
                [float((rough.double() - exact).square().mean()) for rough in (a, b)]
                for a, b, exact in outputs
            ]
        )
    for our_error, their_error in torch.tensor(squares).mean(0).sqrt():
        assert our_error <= 1.1 * their_error


@pytest.mark.parametrize(
    "settings", [{}, {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2}]
)
def test_gradients_in_training(settings, tmp_path):
    theirs = foreign_model("AlbertForPreTraining", classifier_dropout_prob=0.0, **settings).train()
    ours = converted(theirs, tmp_path, hf_compat=True).train()
    batch = inputs(padding="right")
    for outputs in (our_outputs(ours, batch), their_outputs(theirs, batch)):
        sum(output.log_softmax(-1)[..., 0].sum() for output in outputs).backward()
    gradients = {
        name: parameter.grad
        for name, parameter in theirs.named_parameters()
        if parameter.grad is not None
    }
    names = foreign_names(ours.config, "albert")
    assert len(gradients) == len(names)
    for name, parameter in ours.named_parameters():
        prefix = "albert." if name.startswith("encoder.") else ""
        expected = gradients[prefix + names[name].name]
        torch.testing.assert_close(
            parameter.grad, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max() + 1)
        )


def test_defaults_of_an_empty_config_are_those_of_their_class():
    for family, config in (
        ("albert", transformers.AlbertConfig()),
        ("bert", transformers.BertConfig()),
    ):
        assert {key: getattr(config, key) for key in DEFAULTS[family]} == DEFAULTS[family]
    assert set(ALBERT) <= set(DEFAULTS["albert"])
