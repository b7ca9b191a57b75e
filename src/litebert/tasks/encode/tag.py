"""Words in, windows out, with the place of each word's first piece, where its tag is said (BERT
§5.3, which ALBERT follows).
 Words are tokenized one by one, as SentencePiece cuts at spaces in any case; one of which nothing
remains reads <unk>.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from litebert.errors import DataError
from litebert.tasks.card import TaskCard, shown
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.encode.pool import gather, pool_texts, side_by_side
from litebert.tasks.encode.windows import windows
from litebert.tasks.examples import TagExample
from litebert.text.tokenizer import Tokenizer


def encode_tags(card: TaskCard, examples: Sequence[TagExample], tokenizer: Tokenizer) -> Inputs:
    """The windows of every example, in order; every word is asked for in one of them."""
    counts = np.array([len(example.words) for example in examples], np.int64)
    ids, slices = pool_texts([word for example in examples for word in example.words], tokenizer)
    empty = slices[:, 0] == slices[:, 1]
    slices[empty] = len(ids), len(ids) + 1
    pool = gather(np.append(ids, np.int32(tokenizer.unk_id)), slices)
    word_starts = side_by_side(slices[:, 1] - slices[:, 0])
    ends = np.append(word_starts[:, 0], len(pool))[
        np.append(0, np.cumsum(counts))
    ]  # where examples begin and end
    room = np.full(len(examples), card.max_length - 2)
    found = windows(np.diff(ends), room, card.stride)
    begins = ends[found.texts]
    at = np.searchsorted(word_starts[:, 0], found.cores + begins[:, None])
    sizes = at[:, 1] - at[:, 0]
    return Inputs(
        head=card.task.head,
        special_ids=(tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id),
        pool=pool,
        first=np.stack([found.starts, found.stops], 1) + begins[:, None],
        second=np.full((len(begins), 2), -1),
        examples=found.texts,
        sizes=sizes,
        positions=1 + word_starts[:, 0] - np.repeat(begins + found.starts, sizes),
        targets=_targets(card, examples),
    )


def _targets(card: TaskCard, examples: Sequence[TagExample]) -> Int[np.ndarray, " words"] | None:
    if any(example.tags is None for example in examples):
        return None
    numbers = {label: number for number, label in enumerate(card.task.labels)}
    targets = []
    for example in examples:
        tags = example.tags or ()
        if len(tags) != len(example.words):
            raise DataError(
                f"{example.where or example.key}: {len(example.words)} words have {len(tags)} tags"
            )
        unknown = next((tag for tag in tags if tag not in numbers), None)
        if unknown is not None:
            raise DataError(
                f"{example.where or example.key}: tag {unknown!r} is not among those of "
                f"{card.task.name}: "
                f"{shown(card.task.labels)}"
            )
        targets += [numbers[tag] for tag in tags]
    return np.array(targets, np.int64)
