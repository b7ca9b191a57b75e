"""Where an answer really stands in its context.
 In: an answer's text and its stated first character. Out: an Answer whose text is exactly what the
context has there. In the wild, starts are off by white space that was cleaned away, answers carry
blanks at their ends, and an answer has one blank where the context has two or a line feed.
"""

import re

from litebert.tasks.examples import Answer

_SPACE = re.compile(r"\s+")


def align(context: str, text: str, start: int | None) -> Answer | None:
    """The answer where the context has it, nearest to `start`; None where it does not have it at
    all."""
    words = text.strip()
    if not words:
        return None
    near = 0 if start is None else start + len(text) - len(text.lstrip())
    if context.startswith(words, near) and near >= 0:
        return Answer(text=words, start=near)
    pattern = r"\s+".join(re.escape(part) for part in _SPACE.split(words))
    starts = [
        match.start() for match in re.finditer(f"(?={pattern})", context)
    ]  # also those that overlap
    if not starts:
        return None
    at = min(starts, key=lambda place: (abs(place - near), place))
    match = re.compile(pattern).match(context, at)
    assert match is not None
    return Answer(text=match.group(), start=at)
