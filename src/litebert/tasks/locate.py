"""Where an answer stands in its context, in characters; files are often off by some white space."""

import re


def locate(context: str, text: str, start: int) -> tuple[int, int] | None:
    """From and up to which character `text`, white space at its ends aside, stands nearest to `start`; None where nowhere.

    Runs of white space inside of the answer match any other: locate("a  b c", "b  c", 2) -> (3, 6)
    """
    start += len(text) - len(text.lstrip())
    text = text.strip()
    if not text:
        return None
    if start >= 0 and context.startswith(text, start):
        return start, start + len(text)
    pattern = re.compile(r"\s+".join(map(re.escape, text.split())))
    return min((match.span() for match in pattern.finditer(context)), key=lambda span: abs(span[0] - start), default=None)
