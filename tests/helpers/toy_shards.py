"""A made-up corpus whose tokens tell where they stand: token t of the corpus has id FIRST + t."""

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import sentencepiece

from litebert.data.masking import Vocabulary
from litebert.data.random import mix
from litebert.data.shards import Shard
from litebert.text.tokenizer import Tokenizer

FIRST = 5
"""Ids below are special: pad 0, unk 1, cls 2, sep 3, mask 4."""


def toy_shard(
    *,
    documents: int = 60,
    sentences: tuple[int, int] = (1, 40),
    words: tuple[int, int] = (2, 24),
    seed: int = 0,
) -> Shard:
    """Documents of a random number of sentences of random lengths; the first sentence of each is
    longer than others."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(*sentences, documents, endpoint=True)
    sizes = np.minimum(rng.geometric(2 / sum(words), counts.sum()) + words[0], 2 * words[1])
    sizes[np.cumsum(counts) - counts] += words[1] // 2  # all stay within 60 tokens by default
    return shard_of(sizes, counts)


def shard_of(
    sizes: np.ndarray | list[int], counts: np.ndarray | list[int], first: int = 0
) -> Shard:
    """Sentences of these sizes in documents of these counts; `first` tokens stand in shards
    before."""
    ends, num = np.cumsum(sizes), int(np.sum(sizes))
    return Shard(
        tokens=np.arange(first + FIRST, first + FIRST + num, dtype=np.uint32),
        sentences=np.concatenate([[0], ends]).astype(np.uint64),
        documents=np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64),
    )


def toy_vocabulary(size: int, *, word_share: float = 0.7) -> Vocabulary:
    """A share of the tokens begins a word."""
    starts = np.random.default_rng(1).random(size) < word_share
    starts[:FIRST] = True
    return Vocabulary(starts, np.arange(FIRST, size), cls_id=2, sep_id=3, mask_id=4, pad_id=0)


def vocabulary_of(*shards: Shard) -> Vocabulary:
    return toy_vocabulary(FIRST + sum(len(shard.tokens) for shard in shards))


def toy_tokenizer(folder: Path) -> None:
    """A tiny SentencePiece model with ALBERT's special ids, in a folder as `Tokenizer.load` wants
    it."""
    words = [
        first + second for first in "bdfglmnprst" for second in ("an", "eo", "ium", "or", "al")
    ]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words[k:] + words[:k]) for k in range(len(words))]),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2,
    )
    folder.mkdir(parents=True)
    (folder / "spiece.model").write_bytes(model.getvalue())


def write_folder(folder: Path, *shards: Shard) -> Path:
    """Shards as `litebert data build` leaves them, with tokens brought into the tiny tokenizer's
    range."""
    toy_tokenizer(folder / "tokenizer")
    tokenizer = Tokenizer.load(folder / "tokenizer")
    records = []
    for number, shard in enumerate(shards):
        ordinary = tokenizer.vocab_size - FIRST
        arrays = {
            "tokens": (FIRST + mix(shard.tokens.astype(np.uint64)) % np.uint64(ordinary)).astype(
                np.uint16
            ),
            "sentences": shard.sentences,
            "documents": shard.documents,
        }
        name, digests = f"{number:05}", {}
        for kind, array in arrays.items():
            np.save(folder / f"{name}.{kind}.npy", array)
            digests[kind] = hashlib.sha256((folder / f"{name}.{kind}.npy").read_bytes()).hexdigest()
        counts = {"documents": len(shard.documents) - 1, "sentences": len(shard.sentences) - 1}
        records.append({"name": name, **counts, "tokens": len(shard.tokens), "sha256": digests})
    index = {
        "format": "litebert-shards",
        "version": 1,
        "dtype": "uint16",
        "tokenizer": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "shards": records,
        "corpus": [],
    }
    (folder / "index.json").write_text(json.dumps(index))
    return folder
