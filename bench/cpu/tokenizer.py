"""Speed of the tokenizer on real text against bare SentencePiece, and its ids against Hugging
Face's. Prints one JSON object.

    # a corpus as `litebert data build` reads it
    python -m bench.cpu.tokenizer --data CORPUS --tokenizer DIR
    python -m bench.cpu.tokenizer --data CORPUS --tokenizer spiece.model --lines 20000 \\
        --repeats 200 --out tokenizer.json

Bare SentencePiece encodes the same raw lines, given as one list, into lists of ids, without any
clean-up, in as many threads (one). Chunks of a thousand lines, all ways in random order on each;
the ratio of CPU seconds is the median over the chunks. The ids are compared over all lines when the
package `tokenizers` is there.
"""

import argparse
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece

from bench.common.results import add_out, begin, publish
from litebert.data.corpus import read_documents
from litebert.text.tokenizer import Tokenizer

CHUNK = 1000


def read_lines(data: list[str], count: int) -> list[str]:
    """The corpus's first paragraphs, raw."""
    paragraphs = (
        paragraph for document in read_documents(data) for paragraph in document.paragraphs
    )
    return list(itertools.islice(paragraphs, count))


def seconds(work: Callable[[list[str]], object], lines: list[str]) -> float:
    begun = time.process_time()
    result = work(lines)
    spent = time.process_time() - begun
    del result
    return spent


def speed(tokenizer: Tokenizer, lines: list[str], repeats: int) -> dict[str, Any]:
    """Megabytes of raw text a second, for each way to encode, and the ratio to bare
    SentencePiece."""
    bare = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    ways: dict[str, Callable[[list[str]], object]] = {
        "bare": lambda lines: bare.Encode(lines, out_type=int, num_threads=1),
        "ids": tokenizer.encode_batch,
        "ids_in_one_array": tokenizer.encode_flat,
        "ids_and_offsets": tokenizer.encode_with_offsets,
    }
    for work in ways.values():  # tables are made at first use
        work(lines[:CHUNK])
    spent: dict[str, list[float]] = {name: [] for name in ways}
    size = 0.0
    order = random.Random(0)
    for repeat in range(repeats):
        start = repeat * CHUNK % max(1, len(lines) - CHUNK)
        chunk = lines[start : start + CHUNK]
        size += sum(len(line.encode()) for line in chunk) / 1e6
        for name in order.sample(list(ways), len(ways)):  # no way always follows the same one
            spent[name].append(seconds(ways[name], chunk))
    return {
        name: {
            "megabytes_per_second": size / sum(each),
            "ratio": statistics.median(
                base / one for base, one in zip(spent["bare"], each, strict=True)
            ),
        }
        for name, each in spent.items()
    }


def same_ids(tokenizer: Tokenizer, lines: list[str]) -> dict[str, Any] | None:
    """On how many lines Hugging Face's tokenizers, reading our tokenizer.json, gives the same ids;
    the others by example."""
    try:
        import tokenizers
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        peer = tokenizers.Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    differ = []
    for start in range(0, len(lines), 2000):
        chunk = lines[start : start + 2000]
        theirs = [each.ids for each in peer.encode_batch(chunk, add_special_tokens=False)]
        for ours, other in zip(tokenizer.encode_batch(chunk), theirs, strict=True):
            if ours != other:
                at = next(
                    (at for at, (a, b) in enumerate(zip(ours, other, strict=False)) if a != b),
                    min(len(ours), len(other)),
                )
                differ.append(
                    [[tokenizer.tokens[i] for i in ids[at : at + 4]] for ids in (ours, other)]
                )
    return {"lines": len(lines), "different": len(differ), "examples_ours_theirs": differ[:20]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", required=True, help="corpus: files, folders or globs")
    parser.add_argument(
        "--tokenizer", required=True, help="folder of a tokenizer, or a SentencePiece model file"
    )
    parser.add_argument("--lines", type=int, default=20_000, help="paragraphs that are read")
    parser.add_argument("--repeats", type=int, default=200, help="chunks that are timed")
    add_out(parser)
    args = parser.parse_args()
    begin(args.out)
    lines, tokenizer = read_lines(args.data, args.lines), Tokenizer.load(args.tokenizer)
    result = {
        "vocab_size": tokenizer.vocab_size,
        "characters_per_line": statistics.mean(map(len, lines)),
        "ascii_lines": statistics.mean(line.isascii() for line in lines),
        "repeats": args.repeats,
        "speed": speed(tokenizer, lines, args.repeats),
        "huggingface": same_ids(tokenizer, lines),
    }
    publish(result, args.out)


if __name__ == "__main__":
    main()
