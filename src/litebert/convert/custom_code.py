"""Hugging Face folders with a modeling file of their own: any encoder in, and the inverse.

What neither Albert nor Bert of transformers computes is written with modeling_litebert.py, which
transformers runs with trust_remote_code=True. Nothing of such a folder is ever run here:
config.json and the weights say everything. config.json has the fields of EncoderConfig under their
own names, and the plan that follows from them.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from litebert.checks import shorten
from litebert.config import Activation, EncoderConfig, HeadConfig, HeadKind, ModelConfig
from litebert.convert.names import Foreign
from litebert.convert.settings import (
    ARCHITECTURES,
    HEAD_CLASSES,
    as_default,
    config_errors,
    label_settings,
    read_head,
    settings_head,
)
from litebert.convert.weights import StoredWeight, check_layers, load_named
from litebert.errors import ConversionError
from litebert.model.model import bare_model

MODEL_TYPE = "litebert"
PREFIX = "Litebert"
_OWN_CLASSES = {frozenset(["joint_span"]): "ForQuestionAnswering"}
MODELING_FILE = Path(__file__).with_name("modeling_litebert.py")


def custom_settings(config: ModelConfig) -> dict[str, Any]:
    """config.json for modeling_litebert.py."""
    tasks = [head for head in config.heads if head.kind not in ("masked", "order")]
    if len(tasks) > 1:
        there = ", ".join(head.kind for head in tasks)
        raise ConversionError(
            f"a model of transformers has the head of one task; this one has {there}: fine-tune a "
            "model for each"
        )
    kinds = frozenset(head.kind for head in tasks or config.heads)
    described = settings_head(config)
    classes = {
        f"AutoModel{name.removeprefix('Model')}": f"{MODELING_FILE.stem}.{PREFIX}{name}"
        for name in ARCHITECTURES
    }
    return {
        "architectures": [PREFIX + (HEAD_CLASSES | _OWN_CLASSES).get(kinds, "Model")],
        "auto_map": {"AutoConfig": f"{MODELING_FILE.stem}.{PREFIX}Config", **classes},
        "model_type": MODEL_TYPE,
        **config.encoder.to_dict(),
        "plan": [list(owners) for owners in config.encoder.plan()],
        "classifier_dropout": described.dropout if described else 0.0,
        "joint_span": kinds == {"joint_span"},
        "pad_token_id": 0,
        "dtype": "float32",
        **label_settings(described),
    }


def custom_names(config: ModelConfig) -> dict[str, Foreign]:
    """For each of our parameters its name in modeling_litebert.py, without "encoder."."""
    return {name: Foreign(_custom_name(name)) for name in bare_model(config).state_dict()}


def read_custom(
    data: Mapping[str, Any],
    files: Mapping[str, StoredWeight],
    *,
    activation: Activation | None = None,
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The model in such a folder, also after training in transformers."""
    stored = {name.removeprefix("encoder."): weight for name, weight in files.items()}
    encoder = _read_encoder(data)
    encoder = replace(encoder, activation=activation or encoder.activation)
    kinds = _kinds(data, stored)
    if "span" in kinds:  # folders of the first release call it output
        stored = {re.sub(r"^output\.", "span.", name): each for name, each in stored.items()}
    heads = tuple(_read_head(data, kind) for kind in kinds)
    with config_errors():
        config = ModelConfig(encoder=encoder, heads=heads)
    check_layers(config, stored)
    return config, load_named(config, custom_names(config), stored)


def _custom_name(ours: str) -> str:
    """encoder.X is X, heads.masked.X masked.X, heads.order.output.X order.X and the same of span;
    the output of any other head has no prefix, because Hugging Face's classes tell them apart."""
    if ours.startswith("encoder."):
        return ours.removeprefix("encoder.")
    _, kind, name = ours.split(".", 2)
    if kind in ("masked", "joint_span"):
        return f"{kind}.{name}"
    return name.replace("output", kind, 1) if kind in ("order", "span") else name


def _read_encoder(data: Mapping[str, Any]) -> EncoderConfig:
    known = {
        field.name: as_default(data[field.name], field.default)
        for field in fields(EncoderConfig)
        if field.name in data
    }
    with config_errors():
        encoder = EncoderConfig.from_dict(known)
    if [list(owners) for owners in encoder.plan()] != data.get("plan"):
        raise ConversionError(
            "the config's plan is not the one that its num_layers and share give; it was changed "
            "by hand, or by another version of litebert"
        )
    return encoder


def _kinds(data: Mapping[str, Any], stored: Mapping[str, StoredWeight]) -> list[HeadKind]:
    """The heads in the weights; what `output` is, the class says."""
    kinds: list[HeadKind] = ["masked"] if "masked.bias" in stored else []
    kinds += ["order"] if "order.weight" in stored else []
    kinds += ["span"] if "span.weight" in stored else []
    kinds += ["joint_span"] if "joint_span.start.weight" in stored else []
    if "output.weight" not in stored:
        return kinds
    classes = data.get("architectures") or [None]
    name = str(classes[0]).removeprefix(PREFIX) if isinstance(classes, list) else ""
    task = ARCHITECTURES.get(name, ())
    if len(task) != 1 or task == ("masked",):
        raise ConversionError(
            f"the weights hold the head of a task, and the config names {shorten(classes)}; write "
            "the right class under 'architectures' in config.json, such as "
            f"{PREFIX}ForSequenceClassification"
        )
    return [*kinds, *task]


def _read_head(data: Mapping[str, Any], kind: HeadKind) -> HeadConfig:
    if kind == "masked":
        return HeadConfig(kind=kind)
    head = read_head(data, "bert", kind)
    with config_errors():
        return replace(head, dropout=as_default(data.get("classifier_dropout", 0.0), 0.0))
