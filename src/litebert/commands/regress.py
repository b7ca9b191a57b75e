"""litebert regress: a text or a pair of them in; a number out."""

from typing import Annotated

import tyro

from litebert.commands.asking import open_model, tell

First = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FIRST")]
Second = Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[SECOND]")]


def regress(
    first: First,
    second: Second = None,
    /,
    *,
    model: str | None = None,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Score a text, or a pair of them, with a fine-tuned model: litebert regress --model DIR "A man
    sings." "He sings."

    Args:
        first: The text, or the first of two.
        second: The second of two.
        model: Folder of a checkpoint, a run or a Hugging Face model, or a name of `litebert
            models`; else the first of those
            that can do this.
        device: cpu, cuda, cuda:1 …, or auto.
        json: Print one JSON object.
    """
    value = open_model(model, device, "regress").regress(first, second)
    tell(
        [{"first": first, "second": second, "value": value}],
        lambda answer: f"{answer['value']:.4f}",
        json=json,
    )
