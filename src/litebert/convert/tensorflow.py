"""Google's ALBERT checkpoints: a checkpoint prefix with its albert_config.json in, an Imported out.

Reads pretraining checkpoints, TF-Hub's (`module/` before every name) and fine-tuned ones:
classification, regression, RACE, SQuAD 1.1 and the joint head of SQuAD 2. Optimizer state is left
out and counted; any other unknown tensor is refused. TensorFlow is not needed: bundle.py reads the
files.
"""

import re
from pathlib import Path
from typing import Any

import torch

from litebert.checks import shorten
from litebert.config import POOLED_HEADS, Activation, HeadConfig, HeadKind, ModelConfig
from litebert.convert.bundle import Bundle
from litebert.convert.settings import GOOGLE_ACTIVATIONS, read_encoder, read_object
from litebert.convert.weights import Imported, StoredWeight, rename
from litebert.errors import ConversionError

_CONFIGS = ("albert_config.json", "config.json")
_OPTIMIZER = re.compile(
    r"(^|/)(adam_[mv]|lamb_[mv]|Adam(_1)?|AdamWeightDecayOptimizer(_1)?|LAMBOptimizer(_1)?|global_step|beta[12]_power)$"
)
_PREFIXES: dict[HeadKind, str] = {
    "masked": "cls/predictions/",
    "order": "cls/seq_relationship/",
    "span": "cls/squad/",
    "joint_span": "start_logits/",
}
"""Prefixes of a head's weights; `output_weights` are those of pooled fine-tuned heads."""

_FINETUNED_DROPOUT = 0.1
"""Google's fine-tuning uses this dropout before its output, whatever the config says."""

_FORKS = (
    (
        r"layer_normalization|/group_\d+_\d+/",
        "its layer norms are not shared: it comes from a fork that replaced them by Keras layers, "
        "each use of which has its own weights, and no ALBERT has these",
    ),
    (
        r"\.ATTRIBUTES/",
        "it was written by TensorFlow 2's object-based tf.train.Checkpoint, whose names are "
        "another code's",
    ),
    (
        r"^bert/encoder/layer_\d+/",
        "it holds Google's BERT; convert Hugging Face's folder of it instead",
    ),
)
"""Patterns of names in checkpoints of other code, and the reason to refuse them."""


def read_google(
    prefix: Path | str, *, activation: Activation | None = None, head: HeadKind | None = None
) -> Imported:
    """`head` is the kind of a fine-tuned output whose shape does not tell it."""
    prefix = Path(prefix)
    data = _read_config(prefix.parent)
    stored, skipped = _plain_names(Bundle(prefix))
    heads, notes = _heads(stored, head)
    pooler = any(name.startswith("bert/pooler/") for name in stored) or any(
        h.kind in POOLED_HEADS for h in heads
    )
    encoder = read_encoder(
        data, "albert", pooler=pooler, activation=activation, activations=GOOGLE_ACTIVATIONS
    )
    config = ModelConfig(encoder=encoder, heads=heads)
    weights = rename(config, "google", stored)
    if skipped:
        notes.append(f"{skipped} tensors of the optimizer and its step were left out")
    return Imported(config=config, weights=weights, notes=tuple(notes))


def _read_config(folder: Path) -> dict[str, Any]:
    for name in _CONFIGS:
        if (folder / name).is_file():
            return read_object(folder / name)
    raise ConversionError(
        f"{folder} has no {_CONFIGS[0]}; copy the one that came with the checkpoint beside it"
    )


def _plain_names(bundle: Bundle) -> tuple[dict[str, StoredWeight], int]:
    """The weights without TF-Hub's prefix, unread; how many optimizer tensors are left out."""
    stored: dict[str, StoredWeight] = {}
    skipped = 0
    for name in bundle:
        for pattern, reason in _FORKS:
            if re.search(pattern, name):
                raise ConversionError(f"this checkpoint holds {shorten(name)}: {reason}")
        if _OPTIMIZER.search(name):
            skipped += 1
            continue
        plain = name.removeprefix("module/")
        if plain in stored:
            raise ConversionError(
                f"the checkpoint holds {shorten(plain)} twice, once under 'module/'"
            )
        stored[plain] = StoredWeight(
            shape=bundle.shape(name),
            dtype=bundle.dtype(name),
            load=lambda name=name: torch.from_numpy(bundle[name]),  # type: ignore[misc]
        )
    return stored, skipped


def _heads(
    stored: dict[str, StoredWeight], head: HeadKind | None
) -> tuple[tuple[HeadConfig, ...], list[str]]:
    kinds = [
        kind
        for kind, prefix in _PREFIXES.items()
        if any(name.startswith(prefix) for name in stored)
    ]
    heads = [
        HeadConfig(kind=kind, dropout=_FINETUNED_DROPOUT if kind == "joint_span" else 0.0)
        for kind in kinds
    ]
    notes = []
    output = stored.get("output_weights")
    if output is not None:
        rows = output.shape[0] if output.shape else 0
        kind = head or ("regress" if rows == 1 else "classify")
        if kind not in ("classify", "regress", "choose"):
            raise ConversionError(
                "the checkpoint's output_weights are of classify, regress or choose; got head = "
                f"{kind}"
            )
        if kind == "classify" and not 1 <= rows <= 1_000_000:
            raise ConversionError(
                f"output_weights has shape {list(output.shape)}; expected a row for each label"
            )
        if kind == "classify":
            notes.append(
                f"a checkpoint does not name its {rows} labels; they are called LABEL_0 and so on"
            )
        elif head is None:
            notes.append(
                "its single output was taken as regression; add --head choose if it comes from RACE"
            )
        labels = tuple(f"LABEL_{row}" for row in range(rows)) if kind == "classify" else ()
        heads.append(HeadConfig(kind=kind, labels=labels, dropout=_FINETUNED_DROPOUT))
    elif head is not None:
        raise ConversionError(
            f"head = {head} was given, and the checkpoint has no output_weights to read it from"
        )
    return tuple(heads), notes
