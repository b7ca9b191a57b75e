"""Speed and laws of n-gram masking on real text, against a plain Python masker in the same run.
Prints one JSON object.

    python -m bench.cpu.masking --data DIR  # a folder written by `litebert data build`
    python -m bench.cpu.masking --data DIR --repeats 9 --batch-tokens 32768

Both mask the same rows; CPU seconds of one core, interleaved, the median of the repeats. Tokens
are counted with [CLS] and [SEP], without padding.
"""

import argparse
import random
import statistics
import time
from typing import Any

import numpy as np

from bench.common import python_builder as baseline
from bench.common.results import add_out, begin, publish
from litebert.data.batch import assemble_rows
from litebert.data.masking import Rows, mask_rows
from litebert.data.pairs import make_pairs
from litebert.data.random import Purpose, keys, seeded
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream
from litebert.text.tokenizer import Tokenizer

BASELINE_ROWS = 40


def unmasked(stream: Stream, batch_size: int) -> list[Rows]:
    """Batches of an epoch's first examples before anything is hidden."""
    plan = stream.plan(0)
    batches = []
    for start in range(0, min(len(plan), 12 * batch_size) - batch_size + 1, batch_size):
        numbers = plan.order.span(start, start + batch_size)
        pairs = make_pairs(stream.texts, stream.spec, plan, numbers, seed=0)
        rows, _, _ = assemble_rows(
            stream.texts, stream.vocabulary, pairs, max_length=stream.spec.max_length
        )
        batches.append(rows)
    return batches


def measure(
    stream: Stream, tokenizer: Tokenizer, *, batch_size: int, repeats: int
) -> dict[str, Any]:
    spec, batches = stream.spec, unmasked(stream, batch_size)
    pieces, starts = (
        tokenizer.tokens,
        dict(zip(tokenizer.tokens, tokenizer.word_starts.tolist(), strict=True)),
    )
    settings = baseline.Settings(max_length=spec.max_length)
    slow_rows = [
        [pieces[token] for token in row[:size]]
        for row, size in zip(
            batches[0].token_ids[:BASELINE_ROWS].tolist(), batches[0].sizes.tolist(), strict=False
        )
    ]
    fast, slow, laws = [], [], []
    for repeat in range(repeats):
        copies = [rows._replace(token_ids=rows.token_ids.copy()) for rows in batches]
        draws = [
            [
                keys(seeded(repeat, purpose, number), np.arange(batch_size))
                for purpose in (Purpose.CHOOSE, Purpose.REPLACE)
            ]
            for number in range(len(batches))
        ]
        begun = time.process_time()
        hidden = [
            mask_rows(spec, stream.vocabulary, rows, *drawn)
            for rows, drawn in zip(copies, draws, strict=True)
        ]
        fast.append(sum(rows.sizes.sum() for rows in batches) / (time.process_time() - begun))
        laws.append(law(tokenizer, batches, hidden))

        rng = random.Random(repeat)
        begun = time.process_time()
        for row in slow_rows:
            baseline.mask(row, settings, starts, pieces, rng)
        slow.append(sum(map(len, slow_rows)) / (time.process_time() - begun))
    return {
        "tokens_per_second": statistics.median(fast),
        "spread": [min(fast), max(fast)],
        "python_tokens_per_second": statistics.median(slow),
        "ratio": statistics.median(f / s for f, s in zip(fast, slow, strict=True)),
        **{name: statistics.mean(one[name] for one in laws) for name in laws[0]},
    }


def law(tokenizer: Tokenizer, batches: list[Rows], hidden: list[Any]) -> dict[str, float]:
    now = np.concatenate([one.token_ids.reshape(-1)[one.masked_positions] for one in hidden])
    was = np.concatenate([one.masked_labels for one in hidden])
    return {
        "hidden": len(was) / sum(rows.sizes.sum() for rows in batches),
        "of_them_mask": float(np.mean(now == tokenizer.mask_id)),
        "of_them_kept": float(np.mean(now == was)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch-tokens", type=int, default=131_072)
    parser.add_argument("--repeats", type=int, default=7)
    add_out(parser)
    arguments = parser.parse_args()
    begin(arguments.out)
    report: dict[str, Any] = {
        "data": arguments.data,
        "batch_tokens": arguments.batch_tokens,
        "repeats": arguments.repeats,
    }
    for max_length in (128, 512):
        stream = Stream.open(arguments.data, ExampleSpec(max_length=max_length))
        tokenizer = Tokenizer.load(stream.tokenizer_folder)
        report[str(max_length)] = measure(
            stream,
            tokenizer,
            batch_size=arguments.batch_tokens // max_length,
            repeats=arguments.repeats,
        )
    publish(report, arguments.out)


if __name__ == "__main__":
    main()
