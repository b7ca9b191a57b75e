"""litebert fill: texts with [MASK] in; the likeliest pieces in their place out."""

from typing import Any

from litebert.commands.asking import Texts, given, open_model, percent, tell
from litebert.infer.formats import guesses_to_dict


def fill(
    texts: Texts = (),
    /,
    *,
    model: str | None = None,
    top: int = 5,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Fill [MASK] in texts: litebert fill "The capital of [MASK] is Paris."

    Args:
        texts: Texts that hold [MASK]; without any, or as "-", the lines of standard input.
        model: Folder of a checkpoint, a run or a Hugging Face model, or a name of `litebert
            models`; else the first of those
            that can do this.
        top: Guesses for each mask.
        device: cpu, cuda, cuda:1 …, or auto.
        json: Print one JSON object.
    """
    asked = given(texts)
    answers = [
        {"text": text} | guesses_to_dict(guesses)
        for text, guesses in zip(
            asked, open_model(model, device, "fill").fill(asked, top=top), strict=True
        )
    ]
    tell(answers, _lines, json=json)


def _lines(answer: dict[str, Any]) -> str:
    masks = [
        "   ".join(f"{guess['token']} {percent(guess['probability'])}" for guess in mask)
        for mask in answer["masks"]
    ]
    return "\n  ".join([answer["text"], *masks])
