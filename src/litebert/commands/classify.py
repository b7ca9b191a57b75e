"""litebert classify: texts in; their labels, with probabilities, out."""

from litebert.commands.asking import Texts, given, likeliest, open_model, tell
from litebert.infer.formats import to_dict


def classify(
    texts: Texts = (), /, *, model: str | None = None, device: str = "auto", json: bool = False
) -> None:
    """Label texts with a fine-tuned model: litebert classify --model DIR "great film".

    Args:
        texts: Texts; without any, or as "-", the lines of standard input.
        model: Folder of a checkpoint, a run or a Hugging Face model, or a name of `litebert
            models`; else the first of those
            that can do this.
        device: cpu, cuda, cuda:1 …, or auto.
        json: Print one JSON object.
    """
    asked = given(texts)
    said = open_model(model, device, "classify").classify(asked)
    answers = [{"text": text} | to_dict(each) for text, each in zip(asked, said, strict=True)]
    tell(
        answers,
        lambda answer: f"{answer['text']}\n  {likeliest(answer['probabilities'])}",
        json=json,
    )
