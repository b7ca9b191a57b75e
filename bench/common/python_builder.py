"""A straightforward builder of masked, ordered examples in the reference's manner: the baseline of
bench/cpu/examples.py.

One example at a time over lists of pieces, as create_pretraining_data.py of google-research/albert
does it (its quirks are in litebert's docs/examples.md): chunks of sentences, a random B for
one-segment chunks, overflow cut from the longer segment at either end, n-grams of whole words
masked from shuffled candidates. Written for litebert.
"""

import random
import unicodedata
from dataclasses import dataclass

CLS, SEP, MASK = "[CLS]", "[SEP]", "[MASK]"


@dataclass
class Settings:
    max_length: int = 512
    short_probability: float = 0.1
    mask_fraction: float = 0.15
    max_masked: int | None = None
    max_ngram: int = 3


def build(
    documents: list[list[list[str]]],
    settings: Settings,
    starts: dict[str, bool],
    vocabulary: list[str],
    ids: dict[str, int],
    rng: random.Random,
    copies: int = 1,
) -> list[dict[str, list[int]]]:
    """Padded examples as lists of numbers, `copies` of every text, each cut, swapped and masked
    anew."""
    examples = []
    for _ in range(copies):
        for number in range(len(documents)):
            for tokens, segment_ids, label in cut_document(documents, number, settings, rng):
                tokens, positions, labels, _ = mask(tokens, settings, starts, vocabulary, rng)
                examples.append(pad(tokens, segment_ids, positions, labels, label, settings, ids))
    rng.shuffle(examples)
    return examples


def cut_document(documents, number, settings, rng):
    document, longest = documents[number], settings.max_length - 3
    target = rng.randint(2, longest) if rng.random() < settings.short_probability else longest
    chunk, length = [], 0
    for place, sentence in enumerate(document):
        chunk.append(sentence)
        length += len(sentence)
        if length < target and place < len(document) - 1:
            continue
        end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
        a = [token for part in chunk[:end] for token in part]
        if len(chunk) == 1:
            b, label = random_segment(documents, number, target - len(a), rng), 1
        else:
            b, label = [token for part in chunk[end:] for token in part], 0
            if rng.random() < 0.5:
                a, b, label = b, a, 1
        truncate(a, b, longest, rng)
        if a and b:
            yield [CLS, *a, SEP, *b, SEP], [0] * (len(a) + 2) + [1] * (len(b) + 1), label
        chunk, length = [], 0


def random_segment(documents, number, length, rng):
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != number:
            break
    tokens: list[str] = []
    for sentence in documents[other][rng.randint(0, len(documents[other]) - 1) :]:
        tokens.extend(sentence)
        if len(tokens) >= length:
            break
    return tokens


def truncate(a, b, longest, rng):
    while len(a) + len(b) > longest:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def mask(tokens, settings, starts, vocabulary, rng):
    """Hidden tokens, positions, labels, and the number of words in each n-gram taken, in the order
    of taking."""
    words: list[list[int]] = []
    for place, token in enumerate(tokens):
        if token in (CLS, SEP):
            continue
        if words and not starts[token]:
            words[-1].append(place)
        else:
            words.append([place])
    lengths = range(1, settings.max_ngram + 1)
    weights = [1 / length for length in lengths]
    candidates = [
        [words[first : first + length] for length in lengths] for first in range(len(words))
    ]
    rng.shuffle(candidates)
    budget = max(1, round(len(tokens) * settings.mask_fraction))
    if settings.max_masked is not None:
        budget = min(settings.max_masked, budget)
    output, covered, hidden, taken = list(tokens), set(), [], []
    for ngrams in candidates:
        if len(hidden) >= budget:
            break
        length = rng.choices(lengths, weights)[0]
        places = [place for word in ngrams[length - 1] for place in word]
        while len(hidden) + len(places) > budget and length > 1:
            length -= 1
            places = [place for word in ngrams[length - 1] for place in word]
        if len(hidden) + len(places) > budget or any(place in covered for place in places):
            continue
        taken.append(len(ngrams[length - 1]))
        for place in places:
            covered.add(place)
            hidden.append((place, tokens[place]))
            draw = rng.random()
            if draw < 0.8:
                output[place] = MASK
            elif draw >= 0.9:
                output[place] = vocabulary[rng.randint(0, len(vocabulary) - 1)]
    hidden.sort()
    return output, [place for place, _ in hidden], [token for _, token in hidden], taken


def tokenize(model, text):
    """Pieces of one sentence with the reference's clean-up and its rule for digits before a
    comma."""
    text = unicodedata.normalize("NFKD", " ".join(text.strip().split()))
    text = "".join(character for character in text if not unicodedata.combining(character)).lower()
    pieces = []
    for piece in model.encode(text, out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            again = model.encode(piece[:-1].replace("▁", ""), out_type=str)
            if piece[0] != "▁" and again[0][0] == "▁":
                again = again[1:] if len(again[0]) == 1 else [again[0][1:], *again[1:]]
            pieces.extend([*again, piece[-1]])
        else:
            pieces.append(piece)
    return pieces


def pad(tokens, segment_ids, positions, labels, order_label, settings, ids):
    length, most = (
        settings.max_length,
        settings.max_masked or round(settings.max_length * settings.mask_fraction),
    )
    return {
        "token_ids": [ids[token] for token in tokens] + [0] * (length - len(tokens)),
        "segment_ids": segment_ids + [0] * (length - len(tokens)),
        "mask": [1] * len(tokens) + [0] * (length - len(tokens)),
        "masked_positions": positions + [0] * (most - len(positions)),
        "masked_labels": [ids[token] for token in labels] + [0] * (most - len(labels)),
        "order_label": [order_label],
    }
