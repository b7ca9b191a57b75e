"""Hugging Face folders of our models: a config and weights in, theirs out.

The folder loads in transformers with no missing and no unexpected key: as the Albert or Bert class
that computes the same, or where there is none by the modeling file of custom_code.py. A difference
in training alone, such as a dropout they do not have, becomes a note.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.config import EncoderConfig, HeadConfig, HeadKind, ModelConfig
from litebert.convert.custom_code import MODEL_TYPE, MODELING_FILE, custom_names, custom_settings
from litebert.convert.huggingface import FAMILIES
from litebert.convert.names import Foreign, foreign_names
from litebert.convert.settings import (
    HEAD_CLASSES,
    Family,
    num_groups,
    settings_head,
    write_settings,
)
from litebert.files import read_json, to_json
from litebert.storage.checkpoint import write_model
from litebert.text.tokenizer import CONFIG_FILE, Tokenizer

_WITHOUT_POOLER = ("ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering")
_ALBERT: dict[str, tuple[Any, ...]] = {
    "norm": ("post",),
    "positions": ("learned", "sinusoidal"),
    "cycle": ("forward",),
    "unshared_ends": (0,),
    "adapter_rank": (0,),
    "reversible": (False,),
    "embedding_bands": ((),),
}
"""What settings may be where transformers' Albert or Bert is to compute the same."""
PLAIN_RECIPE = "affordable-post"
"""A recipe for one GPU whose models are a plain Albert."""


@dataclass(frozen=True, kw_only=True)
class HuggingFaceModel:
    """A model in Hugging Face's terms."""

    settings: dict[str, Any]
    weights: dict[str, Tensor]
    notes: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write config.json, weights and, if one is needed, a modeling file into a folder."""
        write_model(folder, self.settings, self.weights)
        if self.settings["model_type"] == MODEL_TYPE:
            shutil.copyfile(MODELING_FILE, folder / MODELING_FILE.name)


_EXITS_NOTE = "the exits are left out: transformers always applies all layers"


def to_huggingface(config: ModelConfig, weights: Mapping[str, Tensor]) -> HuggingFaceModel:
    """The model as a class that computes the same; exits, which none has, are left out."""
    if any(head.exits != "none" for head in config.heads):
        heads = tuple(replace(head, exits="none") for head in config.heads)
        last = {name: each for name, each in weights.items() if not name.startswith("exits.")}
        written = to_huggingface(replace(config, heads=heads), last)
        return replace(written, notes=(*written.notes, _EXITS_NOTE))
    if why_custom(config) is None:
        return _to_plain(config, weights)
    note = (
        f"the folder has its own {MODELING_FILE.name}: transformers loads it "
        f"{describe_class(config)}"
    )
    settings = custom_settings(config)
    prefix = "encoder." if settings["architectures"] != ["LitebertModel"] else ""
    renamed = _renamed(weights, custom_names(config), prefix)
    return HuggingFaceModel(settings=settings, weights=renamed, notes=(note,))


def write_sentence_modules(
    folder: Path, encoder: EncoderConfig, task: Mapping[str, Any] | None
) -> None:
    """What sentence-transformers reads beside a model that was tuned for embeddings: its pooling,
    its normalization and its longest input. For any other model it takes the mean."""
    if task is None or task.get("task") != {"name": "embed"}:
        return
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [("2_Normalize", "Normalize")] if task.get("normalize", True) else []
    is_cls = task.get("pooling") == "cls"
    contents: dict[str, Any] = {
        "modules.json": [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for n, (path, kind) in enumerate(modules)
        ],
        "sentence_bert_config.json": {
            "max_seq_length": encoder.max_positions,
            "do_lower_case": False,
        },
        "1_Pooling/config.json": {
            "word_embedding_dimension": encoder.hidden_size,
            "pooling_mode_cls_token": is_cls,
            "pooling_mode_mean_tokens": not is_cls,
        },
    }
    (folder / "1_Pooling").mkdir()
    for name, content in contents.items():
        (folder / name).write_text(to_json(content, indent=2) + "\n")


def write_tokenizer(folder: Path, tokenizer: Tokenizer, encoder: EncoderConfig) -> None:
    """The tokenizer's files, with the longest input that the model reads: transformers truncates
    to it."""
    tokenizer.save(folder)
    path = folder / CONFIG_FILE
    settings = read_json(path) | {"model_max_length": encoder.max_positions}
    path.write_text(to_json(settings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def describe_class(config: ModelConfig) -> str:
    """As what transformers loads a model with this config, for a sentence."""
    reason = why_custom(config)
    if reason is None:
        return f"as {FAMILIES[_family(config.encoder)]}{HEAD_CLASSES[_kinds(config)]}"
    return (
        f"with trust_remote_code=True, since {reason} (models of the recipe {PLAIN_RECIPE} load as "
        "AlbertModel)"
    )


def why_custom(config: ModelConfig) -> str | None:
    """Why no class of transformers computes this model; None where one does."""
    encoder, kinds = config.encoder, _kinds(config)
    if kinds not in HEAD_CLASSES:
        return f"it has no Albert with the heads {' and '.join(sorted(kinds))}"
    for name, values in _ALBERT.items():
        if (value := getattr(encoder, name)) not in values:
            return f"it has no Albert with {name} = {value}"
    plan = encoder.plan()
    if any(attention != ffn for attention, ffn in plan):
        return (
            f"its Albert shares whole layers or none, and this encoder has share = {encoder.share}"
        )
    if _family(encoder) == "albert":
        groups = num_groups(encoder)
        theirs = replace(encoder, share="all", num_groups=groups, hf_compat=True).plan()
        if theirs != plan:
            return f"its Albert rounds {encoder.num_layers} layers in {groups} groups differently"
    return None


def _to_plain(config: ModelConfig, weights: Mapping[str, Tensor]) -> HuggingFaceModel:
    """The model as an Albert or Bert of transformers."""
    architecture = HEAD_CLASSES[_kinds(config)]
    encoder = config.encoder
    family = _family(encoder)
    head = settings_head(config)
    notes = _training_notes(encoder, head, family)
    settings = {"architectures": [FAMILIES[family] + architecture]} | write_settings(
        encoder, family, head
    )
    weights = dict(weights)
    if architecture in _WITHOUT_POOLER and encoder.pooler:
        encoder = replace(encoder, pooler=False)
        for name in ("encoder.pooler.weight", "encoder.pooler.bias"):
            del weights[name]
        notes.append(
            f"the pooler is left out: {FAMILIES[family]}{architecture} has none and does not need "
            "it"
        )
    if family == "albert" and not encoder.has_mapping:
        size = encoder.hidden_size
        encoder = replace(encoder, hf_compat=True)
        weights["encoder.embedding.mapping.weight"] = torch.eye(size)
        weights["encoder.embedding.mapping.bias"] = torch.zeros(size)
        notes.append(
            "Hugging Face's Albert always maps E to H; an identity was added, which changes no "
            "value"
        )
    if architecture == "Model" and not encoder.pooler:
        notes.append(
            f"the encoder has no pooler: {FAMILIES[family]}Model.from_pretrained(…, "
            "add_pooling_layer=False) has none either"
        )
    names = foreign_names(replace(config, encoder=encoder), family)
    renamed = _renamed(weights, names, f"{family}." if config.heads else "")
    return HuggingFaceModel(settings=settings, weights=renamed, notes=tuple(notes))


def _kinds(config: ModelConfig) -> frozenset[HeadKind]:
    return frozenset(head.kind for head in config.heads)


def _family(encoder: EncoderConfig) -> Family:
    return "bert" if encoder.share == "none" and not encoder.has_mapping else "albert"


def _renamed(
    weights: Mapping[str, Tensor], names: Mapping[str, Foreign], prefix: str
) -> dict[str, Tensor]:
    """The weights under their new names, those of the encoder with `prefix`."""
    assert names.keys() == weights.keys(), "a weight would be left behind"
    plain = {ours: tensor.detach().cpu().float().contiguous() for ours, tensor in weights.items()}
    return {
        (prefix if ours.startswith("encoder.") else "") + foreign.name: plain[ours]
        for ours, foreign in names.items()
    }


def _training_notes(encoder: EncoderConfig, head: HeadConfig | None, family: Family) -> list[str]:
    """Differences in training, never in predictions."""
    notes = []
    used = {encoder.embedding_dropout, encoder.attention_output_dropout}
    if family == "bert":
        used.add(encoder.ffn_dropout)
    elif encoder.ffn_dropout and not encoder.hf_compat:
        notes.append(
            "Hugging Face's Albert never applies the feed-forward dropout, so training there "
            "differs"
        )
    if len(used) > 1:
        notes.append(
            f"Hugging Face has one hidden dropout; {encoder.attention_output_dropout:g} of "
            f"{sorted(used)} was written"
        )
    without = ("span", "order") if family == "bert" else ("span",)
    if head and head.dropout and head.kind in without:
        notes.append(f"Hugging Face's {head.kind} head has no dropout; {head.dropout:g} is lost")
    return notes
