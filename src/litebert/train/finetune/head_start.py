"""What fine-tuning starts from: a pretrained checkpoint and a task in; a model with its encoder and
a new head out.
 The encoder may come from pretraining or from another task: RTE, STS-B and MRPC from an MNLI model,
as in the paper.
"""

import hashlib
from dataclasses import replace

import torch

from litebert.config import POOLED_HEADS, HeadConfig, ModelConfig
from litebert.errors import CheckpointError
from litebert.model.model import Model
from litebert.recipes import FinetuneRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import TaskCard
from litebert.text.tokenizer import Tokenizer


def head_config(source: Checkpoint, card: TaskCard, recipe: FinetuneRecipe) -> ModelConfig:
    """The source's encoder with the recipe's dropout, and the task's head."""
    dropout = recipe.encoder_dropout
    encoder = replace(
        source.model.config.encoder,
        embedding_dropout=dropout,
        attention_dropout=dropout,
        attention_output_dropout=dropout,
        ffn_dropout=dropout,
        pooler=source.model.config.encoder.pooler or card.task.head in POOLED_HEADS,
    )
    head = HeadConfig(kind=card.task.head, labels=card.task.labels, dropout=recipe.head_dropout)
    return ModelConfig(encoder=encoder, heads=(head,))


def starting_model(
    source: Checkpoint, config: ModelConfig, recipe: FinetuneRecipe, *, attempt: int
) -> Model:
    """The source's encoder and a new head, drawn anew for each seed and attempt; the same on every
    rank."""
    digest = hashlib.sha256(repr(("head", recipe.seed, attempt)).encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    model = Model(config, checkpoint_every=recipe.checkpoint_every)
    if not recipe.random_weights:
        found = model.encoder.load_state_dict(source.model.encoder.state_dict(), strict=False)
        assert not found.unexpected_keys
        assert all(name.startswith("pooler.") for name in found.missing_keys), (
            "a pooler alone may be new"
        )
    return model


def tokenizer_of(source: Checkpoint, folder: object) -> Tokenizer:
    """The tokenizer a model was trained with; an error where its folder has none."""
    if source.tokenizer is None:
        raise CheckpointError(
            f"the model in {folder} has no tokenizer, so it cannot read text; put its spiece.model "
            "there"
        )
    return source.tokenizer


def fingerprint(model: Model) -> str:
    """A sha256 of the encoder's shape and weights: what a run started from."""
    digest = hashlib.sha256(repr(sorted(model.config.encoder.to_dict().items())).encode())
    for name, tensor in sorted(model.encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
