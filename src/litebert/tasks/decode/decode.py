"""The table of heads: a query in, one prediction for each example out, in their order."""

from collections.abc import Callable

from litebert.tasks.decode.labels import choose, classify, multilabel, regress, tag
from litebert.tasks.decode.outputs import Query
from litebert.tasks.decode.spans import joint_span, span
from litebert.tasks.predictions import Prediction

DECODERS: dict[str, Callable[[Query], list[Prediction]]] = {
    "classify": classify,
    "multilabel": multilabel,
    "regress": regress,
    "choose": choose,
    "span": span,
    "joint_span": joint_span,
    "tag": tag,
}


def decode(query: Query) -> list[Prediction]:
    return DECODERS[query.card.task.head](query)
