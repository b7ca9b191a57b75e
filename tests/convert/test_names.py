"""The table of names: complete, reversible, and equal to the names that the others really use."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from litebert.config import LABELED_HEADS, PRESETS, HeadConfig, ModelConfig
from litebert.convert.bundle import Bundle
from litebert.convert.names import HEADS, foreign_names
from litebert.convert.settings import ARCHITECTURES
from litebert.model.model import Model
from tests.helpers.huggingface import NAMES, foreign_model

TINY = PRESETS["tiny"]
GOOGLE = Path(__file__).parent / "fixtures" / "google" / "model.ckpt-best"


def head(kind: str) -> HeadConfig:
    return HeadConfig(kind=kind, labels=("a", "b", "c") if kind in LABELED_HEADS else ())


@pytest.mark.parametrize(
    ("style", "kind"),
    [
        (style, kind)
        for style in ("albert", "bert", "google")
        for kind, rows in HEADS.items()
        if getattr(rows[0], style) is not None
    ],
)
def test_every_parameter_has_one_name_and_every_name_one_parameter(style, kind):
    encoder = (
        replace(TINY, share="none", embedding_size=32)
        if style == "bert"
        else replace(TINY, num_groups=3, layers_per_group=2)
    )
    config = ModelConfig(encoder=encoder, heads=(head(kind),))
    names = foreign_names(config, style)
    assert names.keys() == Model(config).state_dict().keys()
    assert len({foreign.name for foreign in names.values()}) == len(names)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_of_transformers(name):
    theirs = foreign_model(
        name,
        **({"num_hidden_groups": 3, "inner_group_num": 2} if name.startswith("Albert") else {}),
    )
    family = "bert" if name.startswith("Bert") else "albert"
    shape = (
        {"embedding_size": 32, "share": "none"}
        if family == "bert"
        else {"num_groups": 3, "layers_per_group": 2}
    )
    kinds = ARCHITECTURES[name.removeprefix("Albert").removeprefix("Bert")]
    encoder = replace(TINY, **shape, pooler=any("pooler" in key for key in theirs.state_dict()))
    config = ModelConfig(encoder=encoder, heads=tuple(head(kind) for kind in kinds))
    expected = {key.removeprefix(f"{family}.") for key, _ in theirs.named_parameters()}
    assert {foreign.name for foreign in foreign_names(config, family).values()} == expected


def test_names_are_those_of_google():
    encoder = replace(TINY, num_layers=4, num_groups=2, layers_per_group=2)
    config = ModelConfig(encoder=encoder, heads=(head("masked"), head("order")))
    names = {name for name in Bundle(GOOGLE) if "adam" not in name and name != "global_step"}
    assert {foreign.name for foreign in foreign_names(config, "google").values()} == names


def test_transposed_are_exactly_the_kernels():
    config = ModelConfig(encoder=TINY, heads=(head("joint_span"), head("order")))
    for ours, foreign in foreign_names(config, "google").items():
        matrix = Model(config).state_dict()[ours].ndim == 2
        assert foreign.transposed == (matrix and foreign.name.endswith("/kernel"))
    assert not any(
        foreign.transposed
        for foreign in foreign_names(ModelConfig(encoder=TINY), "albert").values()
    )


def test_owners_are_counted_as_the_model_counts_them():
    for share in ("none", "attention", "ffn", "all"):
        config = ModelConfig(
            encoder=replace(TINY, share=share, num_layers=5, num_groups=2, layers_per_group=3)
        )
        with torch.device("meta"):
            assert foreign_names(config, "albert").keys() == Model(config).state_dict().keys()
