"""litebert choose: a context, a question and options in; which option is right out."""

from typing import Annotated, Any

import tyro

from litebert.commands.asking import open_model, percent, tell
from litebert.infer.formats import to_dict

Options = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="OPTION OPTION…")]


def choose(
    options: Options,
    /,
    *,
    context: str,
    question: str,
    model: str | None = None,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Choose among options: litebert choose --model DIR --context "…" --question "Who?" "the baker"
    "the thief"

    Args:
        options: Two or more answers to choose from.
        context: The text that the question is about.
        question: The question; a "_" in it is where an option goes.
        model: Folder of a checkpoint, a run or a Hugging Face model, or a name of `litebert
            models`; else the first of those
            that can do this.
        device: cpu, cuda, cuda:1 …, or auto.
        json: Print one JSON object.
    """
    said = open_model(model, device, "choose").choose(
        context=context, question=question, options=options
    )
    answer = (
        {"question": question, "options": list(options)}
        | to_dict(said)
        | {"option": options[said.index]}
    )
    tell([answer], _lines, json=json)


def _lines(answer: dict[str, Any]) -> str:
    rows = zip(answer["options"], answer["probabilities"], strict=True)
    best = answer["index"]
    return "\n".join(
        f"{'→' if number == best else ' '} {percent(p):>7}  {text}"
        for number, (text, p) in enumerate(rows)
    )
