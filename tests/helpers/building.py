"""A small corpus and a small vocabulary for the tests of building: made, not stored."""

import random
from collections.abc import Callable
from pathlib import Path

from litebert.data.build import BuildOptions, BuildReport, build_shards
from litebert.data.corpus import CorpusOptions
from litebert.data.shard_writer import BuildProgress
from litebert.text.tokenizer import Tokenizer
from litebert.text.train import VocabularyConfig, train_tokenizer

VOCAB_SIZE = 80
_TEXT = (
    "river stone Dr. Amber walks slowly toward the 1998, old mill and sings U.S. (again) "
    "café “yes” no one two"
)
_WORDS = _TEXT.split()


def made_documents(count: int, *, seed: int = 0) -> list[list[str]]:
    """Documents of a few paragraphs of a few sentences."""
    draw = random.Random(seed)

    def sentence() -> str:
        return " ".join(draw.choices(_WORDS, k=draw.randint(3, 12))).capitalize() + draw.choice(
            ".!?"
        )

    return [
        [" ".join(sentence() for _ in range(draw.randint(1, 4))) for _ in range(draw.randint(1, 4))]
        for _ in range(count)
    ]


def write_text(path: Path, documents: list[list[str]]) -> Path:
    path.write_text(
        "\n\n".join("\n".join(paragraphs) for paragraphs in documents) + "\n", encoding="utf-8"
    )
    return path


def make_tokenizer(folder: Path) -> Path:
    lines = [paragraph for paragraphs in made_documents(300, seed=9) for paragraph in paragraphs]
    tokenizer: Tokenizer = train_tokenizer(lines, VocabularyConfig(vocab_size=VOCAB_SIZE))[0]
    tokenizer.save(folder)
    return folder


def small_build(
    corpus: list[Path],
    tokenizer: Path,
    out: Path,
    *,
    bad_rows: str = "error",
    watch: Callable[[BuildProgress], None] | None = None,
    **changes: object,
) -> BuildReport:
    """A build with chunks and shards so small that there are many of them."""
    reading = {
        key: changes.pop(key) for key in ("documents", "field", "chunk_bytes") if key in changes
    }
    options = CorpusOptions(bad_rows=bad_rows, **({"chunk_bytes": 2048} | reading))  # type: ignore[arg-type]
    chosen = BuildOptions(corpus=options, **({"shard_tokens": 3000} | changes))  # type: ignore[arg-type]
    return build_shards(corpus, tokenizer=tokenizer, out=out, options=chosen, watch=watch)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
