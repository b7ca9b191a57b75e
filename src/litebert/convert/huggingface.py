"""Hugging Face folders: config.json and weights of an Albert or Bert class, or of our own modeling
file, in; an Imported out.

The weights say which heads there are, since released files hold more than their class (a pooler
under ForMaskedLM, an order head in Bert's); the class says what the weights called `classifier`
are. Two kinds of names are left out: buffers that only count positions, and second names of tied
weights if their values are equal.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.checks import shorten
from litebert.config import POOLED_HEADS, Activation, EncoderConfig, HeadKind, ModelConfig
from litebert.convert.custom_code import MODEL_TYPE, read_custom
from litebert.convert.names import DECODERS, HEADS, MAPPING
from litebert.convert.settings import (
    ARCHITECTURES,
    Family,
    read_encoder,
    read_head,
    read_object,
)
from litebert.convert.weights import Imported, StoredWeight, rename, stored_weights
from litebert.errors import ConversionError

FAMILIES: dict[Family, str] = {"albert": "Albert", "bert": "Bert"}
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_OLD_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}
"""Spelling of layer norms in the first conversions from TensorFlow, such as bert-base-uncased."""

_ERF_NOTE = (
    "its config says gelu, which Hugging Face computes with erf, and so it is kept; Google trained "
    "ALBERT (v1 too) with the tanh form: add --activation gelu_tanh if these weights come from "
    "there"
)
_COMPAT_NOTE = (
    "hf_compat is on, because Hugging Face's {} differs from the paper's here and the weights "
    "depend on it"
)


def read_huggingface(
    folder: Path | str,
    *,
    allow_pickle: bool = False,
    activation: Activation | None = None,
    hf_compat: bool = False,
) -> Imported:
    """`hf_compat` keeps all deviations from the paper, not only those that the weights need."""
    folder = Path(folder)
    data = read_object(folder / "config.json")
    if data.get("model_type") == MODEL_TYPE:
        with stored_weights(folder, allow_pickle=allow_pickle) as stored:
            config, weights = read_custom(data, stored, activation=activation)
        return Imported(config=config, weights=weights, notes=_widened(stored))
    family, architecture = _class(data, folder)
    with stored_weights(folder, allow_pickle=allow_pickle) as files:
        stored = _plain_names(files, family)
        notes = [
            f"{name} is a buffer that counts positions; left out"
            for name in _BUFFERS
            if stored.pop(name, None)
        ]
        kinds = _heads(stored, family, architecture)
        pooler = any(name.startswith("pooler.") for name in stored) or any(
            kind in POOLED_HEADS for kind in kinds
        )
        encoder = read_encoder(
            data, family, pooler=pooler, activation=activation, hf_compat=family == "albert"
        )
        _check_tied(stored, family, data)
        identity = family == "albert" and not hf_compat and _is_identity(stored, encoder)
        if family == "albert" and not hf_compat:
            encoder, reason = _without_compat(encoder, identity)
            notes += [_COMPAT_NOTE.format(reason)] * bool(reason)
        heads = tuple(read_head(data, family, kind, hf_compat=encoder.hf_compat) for kind in kinds)
        config = ModelConfig(encoder=encoder, heads=heads)
        if identity and not encoder.has_mapping:
            for suffix in (".weight", ".bias"):
                del stored[f"{MAPPING.albert}{suffix}"]
            notes.append(
                "its mapping is the identity, which a model with E equal to H does without; left "
                "out"
            )
        weights = rename(config, family, stored)
    if family == "albert" and encoder.activation == "gelu_erf" and activation is None:
        notes.append(_ERF_NOTE)
    return Imported(config=config, weights=weights, notes=(*notes, *_widened(stored)))


def _widened(stored: dict[str, StoredWeight]) -> tuple[str, ...]:
    dtypes = ", ".join(sorted({weight.dtype for weight in stored.values()} - {"F32"}))
    note = f"weights stored as {dtypes} were widened to float32, which is exact"
    return (note,) if dtypes else ()


def _class(data: dict[str, Any], folder: Path) -> tuple[Family, str | None]:
    """The family and the class without its family's name; None where the config does not say."""
    kind, classes = data.get("model_type"), data.get("architectures") or []
    names = [name + suffix for name in FAMILIES.values() for suffix in ARCHITECTURES]
    is_known = isinstance(classes, list) and all(name in names for name in classes)
    if not is_known or len(classes) > 1:
        raise ConversionError(
            f"{folder} holds {shorten(classes)}; known classes are {', '.join(names)}"
        )
    for family, name in FAMILIES.items():
        if kind == family or (kind is None and classes and classes[0].startswith(name)):
            if classes and not classes[0].startswith(name):
                raise ConversionError(
                    f"{folder} says model_type {shorten(kind)} and the class "
                    f"{shorten(classes[0])}; they do not match"
                )
            return family, classes[0].removeprefix(name) if classes else None
    raise ConversionError(
        f"{folder} is of the model type {shorten(kind)}; known are {' and '.join(FAMILIES)}"
    )


def _plain_names(weights: dict[str, StoredWeight], family: Family) -> dict[str, StoredWeight]:
    """Names without the encoder's prefix, and layer norms in today's spelling."""
    plain: dict[str, StoredWeight] = {}
    for name, weight in weights.items():
        new = name.removeprefix(f"{family}.")
        for old, suffix in _OLD_SUFFIXES.items():
            new = new.removesuffix(old) + suffix if new.endswith(f"LayerNorm{old}") else new
        if new in plain:
            raise ConversionError(
                f"the weights hold {shorten(new)} under two names, {shorten(name)} is one of them"
            )
        plain[new] = weight
    return plain


def _heads(
    stored: dict[str, StoredWeight], family: Family, architecture: str | None
) -> tuple[HeadKind, ...]:
    """The heads in the weights and those of the class, in our order."""
    class_heads = ARCHITECTURES[architecture] if architecture else ()
    stored_heads = set()
    for kind in ("masked", "order", "span"):
        modules = tuple(f"{getattr(row, family)}." for row in HEADS[kind])
        if any(name.startswith(modules) for name in stored):
            stored_heads.add(kind)
    if "classifier.weight" in stored and not {"classify", "tag", "choose"} & set(class_heads):
        named = FAMILIES[family] + architecture if architecture else "no class"
        raise ConversionError(
            f"the weights hold a classifier, and the config names {named}; write the right class "
            "under 'architectures' in config.json: ForSequenceClassification, "
            "ForTokenClassification or ForMultipleChoice"
        )
    return tuple(kind for kind in HEADS if kind in stored_heads or kind in class_heads)


def _check_tied(stored: dict[str, StoredWeight], family: Family, data: dict[str, Any]) -> None:
    """Remove second names of the token embedding and the bias; refuse an untied decoder."""
    decoder = DECODERS[family]
    twins = {
        ".weight": "embeddings.word_embeddings.weight",
        ".bias": decoder.removesuffix("decoder") + "bias",
    }
    is_untied = data.get("tie_word_embeddings") is False and twins[".bias"] in stored
    if is_untied and f"{decoder}.weight" not in stored:
        raise ConversionError(
            f"the config says tie_word_embeddings = false, and {decoder}.weight is missing"
        )
    for suffix, twin in twins.items():
        second = stored.pop(decoder + suffix, None)
        if second is None or twin not in stored:
            continue
        first = stored[twin]
        alike = (first.shape, first.dtype) == (second.shape, second.dtype)
        if not alike or not torch.equal(first.load(), second.load()):
            raise ConversionError(
                f"{decoder}{suffix} differs from {twin}: this masked head is not tied to the "
                "embedding, and ours always is"
            )


def _is_identity(stored: dict[str, StoredWeight], encoder: EncoderConfig) -> bool:
    """Whether the mapping is the identity, as litebert writes it for models without one."""
    weight, bias = (stored.get(f"{MAPPING.albert}{suffix}") for suffix in (".weight", ".bias"))
    size = encoder.hidden_size
    if weight is None or bias is None or weight.shape != (size, size):
        return False
    matrix: Tensor = weight.load()
    return bool(torch.equal(matrix, torch.eye(size, dtype=matrix.dtype)) and not bias.load().any())


def _without_compat(encoder: EncoderConfig, identity: bool) -> tuple[EncoderConfig, str]:
    """The encoder without Hugging Face's deviations; or unchanged, and which one it needs."""
    plain = replace(encoder, hf_compat=False)
    if not plain.has_mapping and not identity:
        return encoder, "mapping of E to H, which it has even where they are equal,"
    if plain.plan() != encoder.plan():
        return encoder, "rounding of layers to groups"
    return plain, ""
