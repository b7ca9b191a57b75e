"""What a model makes of hidden words, in figures that models with different vocabularies share:
texts in, nats per word out.

A word is what stands between spaces, and the same words of the same windows are hidden from every
model, whole. Two scores: all pieces of a word guessed at once, as `fill` sees them; and in turn,
each piece after those before it are shown, the other word still hidden. A vocabulary of small
pieces loses by the first (its pieces cannot agree with each other) and gains by both, for the
number of [MASK]s tells more of the word: so what that number costs to tell, by its entropy, is
given beside them.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from litebert.model.model import Model
from litebert.text.tokenizer import Tokenizer
from litebert.text.vocabulary import SPACE

ROWS = 64
HIDDEN = 2
"""Words hidden in a window."""

Words = list[list[int]]
"""The ids of each word of a half."""


class Window(NamedTuple):
    """Two halves of as many words, as a and b of an example, and which words are hidden, counted
    over both."""

    a: str
    b: str
    hidden: tuple[int, ...]


def hidden_words(window: Window) -> list[str]:
    """What is hidden in it."""
    words = f"{window.a} {window.b}".split()
    return [words[at] for at in window.hidden]


def split_words(tokenizer: Tokenizer, text: str) -> Words:
    """The ids of `text` by words."""
    words: Words = []
    for index in tokenizer.encode(text):
        if tokenizer.tokens[index].startswith(SPACE) or not words:
            words.append([])
        words[-1].append(index)
    return words


def make_windows(
    texts: Sequence[str],
    limits: Sequence[tuple[Tokenizer, int]],
    *,
    words: int,
    count: int,
    rng: np.random.Generator,
) -> list[Window]:
    """Windows of the texts at random, of at most so many pieces by each vocabulary; left out where
    clean-up joins or parts words, or where too few of them can be written by all."""
    places = [
        (number, start)
        for number, text in enumerate(texts)
        for start in range(0, len(text.split()) - words + 1, words)
    ]
    windows: list[Window] = []
    for place in rng.permutation(len(places)):
        number, start = places[place]
        chosen = texts[number].split()[start : start + words]
        a, b = " ".join(chosen[: words // 2]), " ".join(chosen[words // 2 :])
        cut = [(*limit, split_words(limit[0], a) + split_words(limit[0], b)) for limit in limits]
        if any(len(found) != words or sum(map(len, found)) > most for _, most, found in cut):
            continue
        able = [
            at
            for at in range(words)
            if all(tokenizer.unk_id not in found[at] for tokenizer, _, found in cut)
        ]
        if len(able) >= HIDDEN:
            windows.append(
                Window(a, b, tuple(sorted(rng.choice(able, HIDDEN, replace=False).tolist())))
            )
        if len(windows) == count:
            break
    return windows


class View(NamedTuple):
    """One row that a model is asked about."""

    token_ids: list[int]
    segment_ids: list[int]
    places: list[int]
    """Tokens to be guessed in it."""
    labels: list[int]
    word: int
    """The hidden word, counted over all windows, that the first place belongs to."""
    sizes: tuple[int, ...]
    """How many places each word has from there on."""
    first: int
    """Which piece of its word the first place is."""


def views(windows: Sequence[Window], tokenizer: Tokenizer) -> Iterator[View]:
    """For each window all hidden pieces at once, then each further piece of each word with those
    before it shown."""
    for number, window in enumerate(windows):
        a, b = split_words(tokenizer, window.a), split_words(tokenizer, window.b)
        plain = [tokenizer.cls_id, *chain(*a), tokenizer.sep_id, *chain(*b), tokenizer.sep_id]
        size = 2 + sum(map(len, a))
        segment_ids = [0] * size + [1] * (len(plain) - size)
        spans = []
        for word in window.hidden:
            start = 1 + sum(map(len, (a + b)[:word])) + (word >= len(a))
            spans.append(range(start, start + len((a + b)[word])))
        every = list(chain(*spans))
        masked = plain.copy()
        for place in every:
            masked[place] = tokenizer.mask_id
        labels = [plain[place] for place in every]
        yield View(masked, segment_ids, every, labels, HIDDEN * number, tuple(map(len, spans)), 0)
        for which, span in enumerate(spans):
            for first, place in enumerate(span[1:], 1):
                shown = masked.copy()
                shown[span.start : place] = plain[span.start : place]
                yield View(
                    shown,
                    segment_ids,
                    [place],
                    [plain[place]],
                    HIDDEN * number + which,
                    (1,),
                    first,
                )


class Scores(NamedTuple):
    """For each hidden word."""

    at_once: np.ndarray
    """Nats, its pieces guessed independently."""
    in_turn: np.ndarray
    """Nats, each piece with those before it shown."""
    right: np.ndarray
    """Whether the best guesses at once are the word."""
    pieces: np.ndarray
    """How many it has."""

    @property
    def count_entropy(self) -> float:
        """Nats that telling the number of pieces costs, knowing nothing else."""
        shares = np.bincount(self.pieces)[1:] / len(self.pieces)
        return float(-sum(share * np.log(share) for share in shares if share))


@torch.inference_mode()
def score(model: Model, tokenizer: Tokenizer, windows: Sequence[Window]) -> Scores:
    """What `model` makes of the windows' hidden words."""
    count = HIDDEN * len(windows)
    scores = Scores(
        np.zeros(count), np.zeros(count), np.full(count, True), np.zeros(count, np.int64)
    )
    asked = sorted(views(windows, tokenizer), key=lambda view: len(view.token_ids))
    for start in range(0, len(asked), ROWS):
        rows = asked[start : start + ROWS]
        seq = len(rows[-1].token_ids)
        token_ids = torch.tensor(
            [row.token_ids + [tokenizer.pad_id] * (seq - len(row.token_ids)) for row in rows]
        )
        segment_ids = torch.tensor(
            [row.segment_ids + [0] * (seq - len(row.token_ids)) for row in rows]
        )
        mask = torch.arange(seq) < torch.tensor([[len(row.token_ids)] for row in rows])
        places = torch.tensor(
            [at * seq + place for at, row in enumerate(rows) for place in row.places]
        )
        labels = torch.tensor([label for row in rows for label in row.labels])
        logits = model.masked_logits(
            model.encoder(token_ids=token_ids, segment_ids=segment_ids, mask=mask), places
        )
        nats = iter(F.cross_entropy(logits, labels, reduction="none").tolist())
        right = iter((logits.argmax(1) == labels).tolist())
        for row in rows:
            for word, size in enumerate(row.sizes, row.word):
                losses, hits = [next(nats) for _ in range(size)], [next(right) for _ in range(size)]
                scores.in_turn[word] += losses[0]
                if row.first == 0:
                    scores.at_once[word], scores.right[word], scores.pieces[word] = (
                        sum(losses),
                        all(hits),
                        size,
                    )
    return scores
