"""litebert tag: texts in; a tag for every word out."""

from litebert.commands.asking import Texts, given, open_model, tell
from litebert.infer.formats import to_dict


def tag(
    texts: Texts = (), /, *, model: str | None = None, device: str = "auto", json: bool = False
) -> None:
    """Tag the words of texts with a fine-tuned model: litebert tag --model DIR "Ada lives in
    London"

    Args:
        texts: Texts, whose words stand between white space; without any, or as "-", the lines of
            standard input.
        model: Folder of a checkpoint, a run or a Hugging Face model, or a name of `litebert
            models`; else the first of those
            that can do this.
        device: cpu, cuda, cuda:1 …, or auto.
        json: Print one JSON object.
    """
    asked = given(texts)
    said = open_model(model, device, "tag").tag(asked)
    answers = [
        {"words": text.split()} | to_dict(each) for text, each in zip(asked, said, strict=True)
    ]
    words = [zip(answer["words"], answer["tags"], strict=True) for answer in answers]
    lines = iter("   ".join(f"{word} {tag}" for word, tag in each) for each in words)
    tell(answers, lambda _: next(lines), json=json)
