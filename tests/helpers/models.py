"""Random tiny models with chosen heads, and texts for them."""

import random
from pathlib import Path

import torch

from litebert.config import EncoderConfig, HeadConfig, HeadKind, ModelConfig
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import TaskCard
from litebert.testing import tiny_documents, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer

LABELS = ("bad", "fair", "good")
SENTENCES = [sentence for document in tiny_documents() for sentence in document]
_cache: dict[str, Tokenizer] = {}


def tokenizer(folder: Path) -> Tokenizer:
    if "tiny" not in _cache:
        _cache["tiny"] = Tokenizer.load(tiny_tokenizer(folder))
    return _cache["tiny"]


def save_model(
    folder: Path,
    *heads: HeadKind,
    card: TaskCard | None = None,
    seed: int = 0,
    max_positions: int = 64,
    labels: tuple[str, ...] = LABELS,
) -> Path:
    """A checkpoint whose weights are far enough from zero for answers to differ."""
    pieces = tokenizer(folder.parent / "tokenizer")
    shape = {
        "embedding_size": 16,
        "hidden_size": 32,
        "num_layers": 2,
        "num_attention_heads": 2,
        "ffn_size": 64,
    }
    encoder = EncoderConfig(
        vocab_size=pieces.vocab_size, max_positions=max_positions, init_std=0.2, **shape
    )
    chosen = tuple(
        HeadConfig(kind=kind, labels=labels if kind in ("classify", "tag") else ())
        for kind in heads
    )
    torch.manual_seed(seed)
    model = Model(ModelConfig(encoder=encoder, heads=chosen)).eval()
    Checkpoint(model=model, tokenizer=pieces, task=None if card is None else card.to_dict()).save(
        folder
    )
    return folder


def texts(count: int, *, seed: int = 0) -> list[str]:
    """Of very different lengths, some beyond what the model reads."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(SENTENCES, k=draw.choice((1, 1, 2, 3, 12)))) for _ in range(count)
    ]
