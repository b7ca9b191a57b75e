"""Models for tests of the package's own, and the program that puts them there."""

from pathlib import Path
from typing import Any

import torch

from litebert.config import EncoderConfig, HeadConfig, ModelConfig
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import TaskCard
from litebert.text.tokenizer import Tokenizer
from tools import embed_model

LABELS = ("bad", "good")
FACTS: dict[str, Any] = {
    "summary": "A tiny model, for tests.",
    "license": "Apache-2.0",
    "data": [{"name": "Tiny", "license": "CC0", "note": "sea | stories"}],
    "recipe": {"tokens": 1_200_000, "optimizer": "none"},
    "scores": [
        {"task": "SST-2", "score": "accuracy", "value": 0.5, "split": "dev", "note": "one seed"}
    ],
    "limits": ["It knows nothing."],
}


def make_run(
    folder: Path, tokenizer: Tokenizer, head: HeadConfig, task: TaskCard | None = None
) -> Path:
    torch.manual_seed(0)
    shape = {
        "embedding_size": 16,
        "hidden_size": 32,
        "num_layers": 2,
        "num_attention_heads": 2,
        "ffn_size": 64,
    }
    encoder = EncoderConfig(
        vocab_size=tokenizer.vocab_size, max_positions=64, init_std=0.2, **shape
    )
    model = Model(ModelConfig(encoder=encoder, heads=(head,)))
    checkpoint = Checkpoint(
        model=model, tokenizer=tokenizer, task=None if task is None else task.to_dict()
    )
    checkpoint.save(folder / "final")
    (folder / "recipe.json").write_text('{"recipe": {"seed": 3}}')
    (folder / "status.json").write_text('{"pid": 7, "tokens": 1200128}')
    return folder


def embed(*args: object) -> dict[str, Any]:
    """As tools/embed_model.py does it."""
    report: dict[str, Any] = embed_model.embed(embed_model.parse([str(each) for each in args]))
    return report
