"""litebert pair: two texts in; their label, with probabilities, out."""

from typing import Annotated

import tyro

from litebert.commands.asking import likeliest, open_model, tell
from litebert.infer.formats import to_dict

First = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FIRST")]
Second = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SECOND")]


def pair(
    first: First,
    second: Second,
    /,
    *,
    model: str | None = None,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Label a pair of texts with a fine-tuned model: litebert pair --model DIR "A man sleeps."
    "Somebody is awake."

    Args:
        first: The first text: a premise, a sentence.
        second: The second text: a hypothesis, another sentence.
        model: Folder of a checkpoint, a run or a Hugging Face model, or a name of `litebert
            models`; else the first of those
            that can do this.
        device: cpu, cuda, cuda:1 …, or auto.
        json: Print one JSON object.
    """
    said = open_model(model, device, "pair").pair(first, second)
    answer = {"first": first, "second": second} | to_dict(said)
    tell([answer], lambda answer: likeliest(answer["probabilities"]), json=json)
