"""litebert data show: a folder of shards in; some examples as a person reads them out."""

import json as jsonlib
from typing import Annotated

import tyro
from rich.console import Console

from litebert.data.show import LEGEND, describe
from litebert.data.spec import ExampleSpec, Split
from litebert.data.stream import Stream
from litebert.errors import ConfigError
from litebert.recipes.pretrain import Order
from litebert.text.tokenizer import Tokenizer

Folder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]


def show(
    folder: Folder,
    /,
    *,
    count: int = 3,
    seed: int = 0,
    epoch: int = 0,
    max_length: int = 128,
    order: Order = "sop",
    split: Split = "train",
    json: bool = False,
) -> None:
    """Print examples with what is hidden in them, and say their order in words.

    Args:
        folder: A folder written by `litebert data build`.
        count: Examples to show.
        seed: Seed of the stream, as in pretraining.
        epoch: Which epoch's cuts, order and masks.
        max_length: Tokens in an example, at most, with [CLS] and [SEP].
        order: sop (swapped segments), nsp (segment of another document) or none.
        split: train, heldout or all documents.
        json: Print one JSON object.
    """
    if count < 1 or epoch < 0:
        raise ConfigError(f"count is at least 1 and epoch at least 0; got {count} and {epoch}")
    stream = Stream.open(
        folder, ExampleSpec(max_length=max_length, order=order), seed=seed, split=split
    )
    tokenizer = Tokenizer.load(stream.tokenizer_folder)
    num_examples = stream.num_examples(epoch)
    batch = stream.batch(epoch, 0, min(count, num_examples))
    examples = describe(batch, tokenizer.pieces, mask_id=tokenizer.mask_id, order=order)
    if json:
        shown = [example.to_dict() for example in examples]
        print(
            jsonlib.dumps(
                {"epoch": epoch, "num_examples": num_examples, "examples": shown},
                ensure_ascii=False,
            )
        )
        return
    console = Console(highlight=False)
    console.print(f"{num_examples:,} examples in epoch {epoch} of {folder}", markup=False)
    console.print(LEGEND, style="dim", markup=False)
    for example in examples:
        console.print()
        console.print(example.render())
