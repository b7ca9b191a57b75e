"""Random tiny models of transformers, the oracle: built, saved, converted and compared in one
place."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from litebert.convert.huggingface import FAMILIES, read_huggingface
from litebert.model.model import Model

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

ALBERT = {
    "vocab_size": 60,
    "embedding_size": 12,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "classifier_dropout_prob": 0.1,
}
BERT = {
    key: value
    for key, value in ALBERT.items()
    if key not in ("embedding_size", "classifier_dropout_prob")
}
CLASSES = (
    "Model",
    "ForPreTraining",
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)
NAMES = tuple(family + name for family in FAMILIES.values() for name in CLASSES)

JUNK = [
    None,
    True,
    -1,
    0,
    3,
    10**9,
    10**30,
    1.5,
    float("nan"),
    "",
    "gelu",
    [],
    [1],
    {},
    {"0": 1},
    ["AlbertModel"],
]
"""Values that a config may hold by mistake or malice."""

Inputs = dict[str, Tensor]


def foreign_model(name: str, *, seed: int = 0, **settings: Any) -> Any:
    """A model of transformers in which no parameter has the value it starts with."""
    family = "Bert" if name.startswith("Bert") else "Albert"
    defaults = BERT if family == "Bert" else ALBERT
    config = getattr(transformers, f"{family}Config")(**{**defaults, **settings})
    model = getattr(transformers, name)(config).eval()
    randomize(model, seed)
    return model


def randomize(model: nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = name.endswith("weight") and parameter.ndim == 1
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator) * (0.2 if norm else 0.1) + norm
            )


def converted(model: Any, folder: Path, **options: Any) -> Model:
    model.save_pretrained(folder)
    return read_huggingface(folder, **options).model()


def inputs(
    *, batch: int = 3, seq: int = 11, vocab: int = 60, padding: str = "none", seed: int = 0
) -> Inputs:
    """Ids, segments and a mask under our names; `padding` is none, left, right, or row (the last
    row is padded wholly)."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, seq + 1, (batch,), generator=generator)
    places = torch.arange(seq)
    mask = {
        "none": torch.ones(batch, seq, dtype=torch.bool),
        "right": places < lengths[:, None],
        "left": places >= seq - lengths[:, None],
        "row": (torch.arange(batch) < batch - 1)[:, None].expand(batch, seq),
    }[padding]
    return {
        "token_ids": torch.randint(5, vocab, (batch, seq), generator=generator).where(mask, 0),
        "segment_ids": torch.randint(0, 2, (batch, seq), generator=generator).where(mask, 0),
        "mask": mask,
    }


def their_outputs(model: Any, batch: Inputs, **other: Any) -> list[Tensor]:
    """The outputs of a model of transformers; multiple choice reads the rows as options of one
    question."""
    choice = type(model).__name__.endswith("MultipleChoice")
    foreign = {
        "input_ids": batch["token_ids"],
        "token_type_ids": batch["segment_ids"],
        "attention_mask": batch["mask"].long(),
    }
    out = model(
        **{name: tensor[None] if choice else tensor for name, tensor in foreign.items()}, **other
    )
    if "start_logits" in out:
        return [torch.stack([out.start_logits, out.end_logits], -1)]
    if choice:
        return [out.logits[0, :, None]]
    keys = (
        "last_hidden_state",
        "pooler_output",
        "prediction_logits",
        "sop_logits",
        "seq_relationship_logits",
        "logits",
    )
    return [out[key] for key in keys if key in out]


def our_outputs(model: Model, batch: Inputs) -> list[Tensor]:
    """The outputs of our model in the order of `their_outputs`."""
    states = model.encoder(**batch)
    kinds = list(model.heads)
    if not kinds:
        return [states, model.encoder.pool(states)]
    shape = (*states.shape[:2], -1)
    return [
        model.masked_logits(states).view(shape) if kind == "masked" else model.logits(kind, states)
        for kind in kinds
    ]


def difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    assert len(ours) == len(theirs)
    assert [tensor.shape for tensor in ours] == [tensor.shape for tensor in theirs]
    return max(
        float((a.double() - b.double()).abs().max()) for a, b in zip(ours, theirs, strict=True)
    )
