"""The package's own model asked about the demo's text: speeches in; words that it found, and how
often it did, out."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from litebert.demo.corpus import Speech
from litebert.infer.predictor import Predictor
from litebert.text.sentences import split_sentences

WORDS = (6, 30)
"""Words of a sentence that is asked: fewer tell too little, more take long."""
_WORD = re.compile(r"[A-Za-z]{2,}")


@dataclass(frozen=True, kw_only=True)
class Hidden:
    """A sentence with one word hidden, and what the model says of it."""

    text: str
    """With [MASK] in the word's place."""
    word: str
    guesses: tuple[tuple[str, float], ...] = ()

    @property
    def is_right(self) -> bool:
        return bool(self.guesses) and self.guesses[0][0] == self.word


def hide(speeches: Sequence[Speech], model: Predictor, count: int) -> list[Hidden]:
    """Sentences of held-out speeches, spread over them all; in each the middle word that is one
    piece is hidden."""
    sentences = [
        sentence for speech in speeches if speech.heldout for sentence in _sentences(speech)
    ]
    stride = max(len(sentences) // count, 1)
    found: list[Hidden] = []
    for sentence in sentences[::stride]:
        words = [
            match
            for match in _WORD.finditer(sentence)
            if len(model.tokenizer.encode(match[0])) == 1
        ]
        if words:
            word = words[len(words) // 2]
            found.append(
                Hidden(
                    text=f"{sentence[: word.start()]}[MASK]{sentence[word.end() :]}",
                    word=word[0].lower(),
                )
            )
    return found[:count]


def ask(hidden: Sequence[Hidden], model: Predictor) -> list[Hidden]:
    """The same with the model's three best guesses."""
    answers = model.fill([each.text for each in hidden], top=3)
    return [
        Hidden(
            text=each.text,
            word=each.word,
            guesses=tuple((guess.token, guess.probability) for guess in guesses),
        )
        for each, (guesses,) in zip(hidden, answers, strict=True)
    ]


def _sentences(speech: Speech) -> Iterator[str]:
    for paragraph in speech.paragraphs:
        for sentence in split_sentences(" ".join(paragraph.split())):
            if WORDS[0] <= len(sentence.split()) <= WORDS[1] and "[" not in sentence:
                yield sentence
