"""Tiny data that behave like real ones: a corpus, a tokenizer, shards, a recipe, task files. For
tests, docs and benchmarks.

A small grammar generates the corpus; its words depend on each other, so that a model learns it in
seconds.
"""

import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import sentencepiece

from litebert.data.build import BuildOptions, build_shards
from litebert.recipes import FractionStages, OptimizerSpec, PretrainRecipe, Stages
from litebert.testing.files import TINY_SPLITS, WORLDS, tiny_corpus, tiny_documents, tiny_task
from litebert.text.tokenizer import Tokenizer

__all__ = [
    "SHAPE",
    "TINY_SPLITS",
    "WORLDS",
    "tiny_corpus",
    "tiny_documents",
    "tiny_recipe",
    "tiny_shards",
    "tiny_task",
    "tiny_tokenizer",
]

SPECIALS = ["[CLS]", "[SEP]", "[MASK]"]
SHAPE: tuple[tuple[str, int | str], ...] = (
    ("norm", "pre"),
    ("embedding_size", 16),
    ("hidden_size", 32),
    ("num_layers", 2),
    ("num_attention_heads", 2),
    ("ffn_size", 64),
    ("max_positions", 64),
)
"""An encoder of a few thousand parameters, as overrides of a preset."""


def tiny_tokenizer(
    folder: Path, *, vocab_size: int = 96, texts: Iterable[str] | None = None
) -> Path:
    """A vocabulary of the tiny corpus or of `texts`, in ALBERT's layout, as a folder."""
    texts = texts or [sentence for sentences in tiny_documents() for sentence in sentences]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(texts),
        model_writer=model,
        vocab_size=vocab_size,
        model_type="unigram",
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=SPECIALS,
        num_threads=1,
        minloglevel=2,
    )
    Tokenizer(model.getvalue()).save(folder)
    return folder


def tiny_shards(folder: Path, *, documents: int = 60, seed: int = 0, vocab_size: int = 96) -> Path:
    """Shards of the tiny corpus; `folder` holds the corpus and the tokenizer too. The shards' own
    folder comes back."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = tiny_corpus(folder / "corpus.txt", documents=documents, seed=seed)
    tokenizer = tiny_tokenizer(folder / "tokenizer", vocab_size=vocab_size)
    build_shards(
        [str(corpus)],
        tokenizer=str(tokenizer),
        out=str(folder / "shards"),
        options=BuildOptions(split="lines"),
    )
    return folder / "shards"


def tiny_recipe(**changes: Any) -> PretrainRecipe:
    """A run of seconds on the tiny shards; settings of the optimizer may be among the changes."""
    spec = {
        name: changes.pop(name)
        for name in ("name", "learning_rate", "warmup", "schedule")
        if name in changes
    }
    encoder = dict(SHAPE) | changes.pop("encoder", {})
    base = PretrainRecipe(
        preset="albert-base-v2",
        overrides=tuple(encoder.items()),
        mask_fraction=FractionStages.constant(0.15),
        steps=12,
        tokens=None,
        batch_size=Stages.constant(8),
        sequence_length=Stages.constant(24),
        microbatch_tokens=24 * 4,
        heldout_fraction=0.1,
        evaluate_every=5,
        evaluate_tokens=24 * 20,
        save_every=4,
        plateau_steps=0,
        optimizer=OptimizerSpec(learning_rate=2e-3),
    )
    return replace(base, **changes, optimizer=replace(base.optimizer, **spec))
