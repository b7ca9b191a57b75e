"""Ready examples a second, against a straightforward Python builder in the same run. Prints one
JSON object.

    python -m bench.cpu.examples --data DIR  # a folder written by `litebert data build`
    python -m bench.cpu.examples --data DIR --documents 600 --copies 10

Both make ten masked copies of the same documents, as the reference does: first from sentences
already tokenized, then with tokenization counted too (ours: the tokenizer's fast path over all
sentences; theirs: sentence by sentence with the reference's clean-up). CPU seconds of one core, the
two interleaved, the median of the repeats. Examples are not equally many on the two sides, since
only ours drops one-sentence chunks, so tokens a second are given as well. Then a reader with worker
processes, in wall time.
"""

import argparse
import itertools
import random
import statistics
import time
from typing import Any

import numpy as np

from bench.common import python_builder as baseline
from bench.common.results import add_out, begin, publish
from litebert.data.shards import Shard, Shards
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream
from litebert.text.tokenizer import Tokenizer


def sample(shard: Shard, documents: int) -> Shard:
    """The first documents of a shard, in memory."""
    ends = shard.documents[: documents + 1]
    sentences = shard.sentences[: int(ends[-1]) + 1]
    return Shard(
        tokens=np.array(shard.tokens[: int(sentences[-1])]),
        sentences=np.array(sentences),
        documents=np.array(ends),
    )


def as_lists(shard: Shard, pieces: list[str]) -> list[list[list[str]]]:
    """Documents as lists of sentences as lists of pieces: what the reference holds in memory."""
    spans = shard.sentences.astype(int)
    names = [
        [pieces[t] for t in shard.tokens[low:high].tolist()]
        for low, high in itertools.pairwise(spans)
    ]
    bounds = shard.documents.astype(int)
    return [names[low:high] for low, high in itertools.pairwise(bounds)]


def ours(shard: Shard, stream: Stream, copies: int, batch_size: int) -> tuple[float, int, int]:
    """CPU seconds, examples and tokens; the epoch's plan is counted."""
    fresh = Stream([shard], stream.vocabulary, stream.spec, split="all")
    begun, count, tokens = time.process_time(), 0, 0
    for epoch in range(copies):
        size = fresh.num_examples(epoch)
        for start in range(0, size, batch_size):
            batch = fresh.batch(epoch, start, min(batch_size, size - start))
            count += len(batch)
            tokens += batch.num_tokens
    return time.process_time() - begun, count, tokens


def theirs(
    documents: Any, tokenizer: Tokenizer, settings: baseline.Settings, copies: int
) -> tuple[float, int, int]:
    pieces = tokenizer.tokens
    starts = dict(zip(pieces, tokenizer.word_starts.tolist(), strict=True))
    ids = {piece: number for number, piece in enumerate(pieces)}
    begun = time.process_time()
    examples = baseline.build(documents, settings, starts, pieces, ids, random.Random(0), copies)
    return (
        time.process_time() - begun,
        len(examples),
        sum(sum(example["mask"]) for example in examples),
    )


def tokenize(shard: Shard, tokenizer: Tokenizer, model: Any) -> tuple[float, float]:
    """CPU seconds that both sides' tokenization of the same sentences takes."""
    spans = shard.sentences.astype(int)
    texts = [
        tokenizer.decode(shard.tokens[low:high].tolist()) for low, high in itertools.pairwise(spans)
    ]
    begun = time.process_time()
    tokenizer.encode_batch(texts)
    fast = time.process_time() - begun
    begun = time.process_time()
    for text in texts:
        baseline.tokenize(model, text)
    return fast, time.process_time() - begun


def rates(runs: list[tuple[float, int, int]], extra: list[float]) -> dict[str, float]:
    return {
        "examples_per_second": statistics.median(count / seconds for seconds, count, _ in runs),
        "tokens_per_second": statistics.median(tokens / seconds for seconds, _, tokens in runs),
        "examples_per_second_with_tokenization": statistics.median(
            count / (seconds + more) for (seconds, count, _), more in zip(runs, extra, strict=True)
        ),
    }


def reader(stream: Stream, workers: int, batch_size: int, batches: int) -> dict[str, float]:
    """Wall time to the first batch, and tokens a second after it."""
    begun = time.perf_counter()
    with stream.read(batch_size, workers=workers) as batches_in:
        next(batches_in)
        first = time.perf_counter() - begun
        for _ in range(3):
            next(batches_in)
        begun = time.perf_counter()
        tokens = sum(next(batches_in).num_tokens for _ in range(batches))
        return {
            "first_batch_seconds": first,
            "tokens_per_second": tokens / (time.perf_counter() - begun),
        }


def main() -> None:
    import sentencepiece

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch-tokens", type=int, default=131_072)
    parser.add_argument("--workers", type=int, default=2)
    add_out(parser)
    arguments = parser.parse_args()
    begin(arguments.out)
    shards = Shards.open(arguments.data)
    tokenizer = Tokenizer.load(shards.tokenizer_folder)
    model = sentencepiece.SentencePieceProcessor(
        model_file=str(shards.tokenizer_folder / "spiece.model")
    )
    shard = sample(shards.arrays(0), arguments.documents)
    documents = as_lists(shard, tokenizer.tokens)
    report: dict[str, Any] = vars(arguments) | {"tokens": len(shard.tokens)}
    del report["out"]
    for max_length in (128, 512):
        stream = Stream.open(arguments.data, ExampleSpec(max_length=max_length))
        settings = baseline.Settings(max_length=max_length)
        fast, slow, encoding = [], [], []
        for _ in range(arguments.repeats):
            fast.append(ours(shard, stream, arguments.copies, arguments.batch_tokens // max_length))
            slow.append(theirs(documents, tokenizer, settings, arguments.copies))
            encoding.append(tokenize(shard, tokenizer, model))
        mine, plain = (
            rates(fast, [one[0] for one in encoding]),
            rates(slow, [one[1] for one in encoding]),
        )
        report[str(max_length)] = {
            "litebert": mine,
            "python": plain,
            "ratio": {name: mine[name] / plain[name] for name in mine},
            "reader": {
                str(workers): reader(stream, workers, 64, 200)
                for workers in sorted({0, 1, arguments.workers})
            },
        }
    publish(report, arguments.out)


if __name__ == "__main__":
    main()
