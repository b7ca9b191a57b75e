"""Hugging Face folders of our models: a config and weights in, theirs out, or the reason why not.

The folder loads in transformers with no missing and no unexpected key. A model that no class of
theirs can compute is refused; a difference in training alone, such as a dropout they do not have,
becomes a note.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.config import EncoderConfig, HeadConfig, ModelConfig
from litebert.convert.huggingface import ARCHITECTURES, FAMILIES
from litebert.convert.names import foreign_names
from litebert.convert.settings import Family, write_settings
from litebert.errors import ConversionError
from litebert.storage.checkpoint import write_model

_WITHOUT_POOLER = ("ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering")
_HEAD_CLASSES = {frozenset(heads): name for name, heads in ARCHITECTURES.items()} | {
    frozenset([kind]): "ForSequenceClassification" for kind in ("multilabel", "regress")
}


@dataclass(frozen=True, kw_only=True)
class HuggingFaceModel:
    """A model in Hugging Face's terms."""

    settings: dict[str, Any]
    weights: dict[str, Tensor]
    notes: tuple[str, ...]

    def write(self, folder: Path) -> None:
        """Write config.json and model.safetensors into an existing folder."""
        write_model(folder, self.settings, self.weights)


def to_huggingface(config: ModelConfig, weights: Mapping[str, Tensor]) -> HuggingFaceModel:
    """The model as the Albert or Bert class that computes the same."""
    architecture = _architecture(config)
    encoder = config.encoder
    family: Family = "bert" if encoder.share == "none" and not encoder.has_mapping else "albert"
    _check_encoder(encoder, family)
    head = _settings_head(config.heads)
    notes = _training_notes(encoder, head, family)
    settings = {"architectures": [FAMILIES[family] + architecture]} | write_settings(
        encoder, family, head
    )
    weights = dict(weights)
    if architecture in _WITHOUT_POOLER and encoder.pooler:
        encoder = replace(encoder, pooler=False)
        weights = {
            name: tensor
            for name, tensor in weights.items()
            if not name.startswith("encoder.pooler.")
        }
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
    names = foreign_names(replace(config, encoder=encoder), family)
    prefix = f"{family}." if config.heads else ""
    renamed = {
        (prefix if ours.startswith("encoder.") else "") + foreign.name: weights[ours]
        .detach()
        .cpu()
        .float()
        .contiguous()
        for ours, foreign in names.items()
    }
    assert len(renamed) == len(weights), "a weight would be left behind"
    return HuggingFaceModel(settings=settings, weights=renamed, notes=tuple(notes))


def _architecture(config: ModelConfig) -> str:
    kinds = frozenset(head.kind for head in config.heads)
    if "joint_span" in kinds:
        raise ConversionError(
            "Hugging Face's Albert has no joint span head (start, end given start, answerability)"
        )
    if kinds not in _HEAD_CLASSES:
        raise ConversionError(
            f"Hugging Face has no class with the heads {', '.join(sorted(kinds))} together; "
            "known are none, masked with order, and each alone but order"
        )
    architecture = _HEAD_CLASSES[kinds]
    if not config.encoder.pooler and architecture not in _WITHOUT_POOLER:
        raise ConversionError(f"Hugging Face's {architecture} has a pooler, this encoder has none")
    return architecture


def _check_encoder(encoder: EncoderConfig, family: Family) -> None:
    if encoder.norm == "pre":
        raise ConversionError(
            "Hugging Face has post-norm encoders only, and this one is pre-norm (norm = pre); "
            "a model that was trained with norm = post converts"
        )
    plan = encoder.plan()
    if any(attention != ffn for attention, ffn in plan):
        raise ConversionError(
            "Hugging Face's Albert shares whole layers or none; this encoder has share = "
            f"{encoder.share}"
        )
    if family == "albert":
        groups = encoder.num_groups if encoder.share == "all" else encoder.num_layers
        theirs = replace(encoder, share="all", num_groups=groups, hf_compat=True).plan()
        if theirs != plan:
            raise ConversionError(
                f"Hugging Face's Albert rounds {encoder.num_layers} layers in {groups} groups "
                "differently: some layers would run with another group's weights"
            )


def _settings_head(heads: tuple[HeadConfig, ...]) -> HeadConfig | None:
    """The head whose labels and dropout go into Hugging Face's config."""
    return next((head for head in heads if head.kind != "masked"), None)


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
    if (
        head
        and head.dropout
        and (head.kind == "span" or (head.kind == "order" and family == "bert"))
    ):
        notes.append(f"Hugging Face's {head.kind} head has no dropout; {head.dropout:g} is lost")
    return notes
