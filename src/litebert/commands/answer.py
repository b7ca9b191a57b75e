"""litebert answer: a question and a context in; the span of the context that answers, or no answer,
out."""

from typing import Annotated, Any

import tyro

from litebert.commands.asking import open_model, read_input, tell
from litebert.infer.formats import to_dict
from litebert.tasks.examples import AnswerExample

Question = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="QUESTION")]


def answer(
    question: Question,
    /,
    *,
    context: str,
    model: str | None = None,
    device: str = "auto",
    json: bool = False,
) -> None:
    """Answer from a text: litebert answer --model DIR "Who sings?" --context "The baker sings."

    Args:
        question: The question.
        context: The text that holds the answer; "-" reads it from standard input. It may be of any
            length.
        model: Folder of a checkpoint, a run or a Hugging Face model, or a name of `litebert
            models`; else the first of those
            that can do this.
        device: cpu, cuda, cuda:1 …, or auto.
        json: Print one JSON object, with the other candidates.
    """
    text = read_input() if context == "-" else context
    example = AnswerExample(key="", question=question, context=text)
    said = next(open_model(model, device, "answer").predict([example], kind="answer"))
    tell([{"question": question} | to_dict(said)], _line, json=json)


def _line(answer: dict[str, Any]) -> str:
    if answer["text"] is None:
        return f"no answer (null score {answer['null_score']:.2f})"
    return f"{answer['text']}   (characters {answer['start']} to {answer['end']}, score {answer['score']:.2f})"
