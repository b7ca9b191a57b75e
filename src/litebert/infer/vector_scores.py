"""What a model's vectors are worth: scored pairs of texts in, Spearman's and Pearson's correlations
of their cosines with the scores out; queries, documents and judgments in, nDCG@10, MRR@10 and
recall@100 out, beside BM25 and TF-IDF. Any model with an encoder will do.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from litebert.checks import list_names, shorten
from litebert.config import Pooling
from litebert.errors import ConfigError, DataError
from litebert.infer.predictor import Predictor
from litebert.tasks.scores.vectors import DEPTH, MEASURES, SimilarityScores, WordIndex, interval
from litebert.tasks.scores.vectors import score_similarity as score_vectors
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.pairs import open_scored_pairs
from litebert.tasks.tables.rows import read_rows

StrPath = str | os.PathLike[str]
_ID, _QUERY, _DOCUMENT = (
    "_id id key",
    "query-id query_id qid query",
    "corpus-id doc-id doc_id docid",
)
_SCORE = "score relevance label rel"


@dataclass(frozen=True, kw_only=True)
class RetrievalScores:
    """Means over queries, from 0 to 1."""

    num_queries: int
    """With at least one relevant document."""
    num_documents: int
    scores: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    """95 % intervals by bootstrap over queries."""
    baselines: dict[str, dict[str, float]]
    """Scores of bm25 and tfidf."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def score_similarity(
    predictor: Predictor,
    data: Any,
    *,
    options: TableOptions | None = None,
    pooling: Pooling | None = None,
    dimensions: int | None = None,
    samples: int = 1000,
) -> SimilarityScores:
    """Of a file or a table in memory with two texts and a score in each row; with `samples`
    resamples for the intervals."""
    if samples < 1:
        raise ConfigError(f"samples is a number from 1; got {samples}")
    pairs, notes = open_scored_pairs(data, options)
    texts = [*(pair.first for pair in pairs), *(pair.second or "" for pair in pairs)]
    vectors = predictor.embed(texts, pooling=pooling, dimensions=dimensions)
    return score_vectors(pairs, vectors, samples=samples, notes=notes)


def score_retrieval(
    predictor: Predictor,
    *,
    queries: StrPath,
    corpus: StrPath,
    qrels: StrPath,
    pooling: Pooling | None = None,
    dimensions: int | None = None,
    samples: int = 1000,
) -> RetrievalScores:
    """Rank all documents for every judged query by cosine. Files are tables, as BEIR has them:
    `queries` and `corpus` with _id and text (and title, which is put before the text), `qrels` with
    query-id, corpus-id and score. Of equal scores the earlier document comes first; a document
    without text comes last."""
    if samples < 1:
        raise ConfigError(f"samples is a number from 1; got {samples}")
    query_texts, documents = _read_texts(queries), _read_texts(corpus)
    relevant, notes = _read_judgments(qrels, query_texts, documents)
    texts = list(documents.values())
    written = np.array([bool(text.strip()) for text in texts])
    if not written.any():
        raise DataError(f"{corpus}: no document has a text")

    def embed(some: list[str]) -> np.ndarray:
        vectors = predictor.embed(some, pooling=pooling, normalize=True, dimensions=dimensions)
        return np.asarray(vectors)

    ours = embed([text for text in texts if text.strip()])
    theirs = embed([query_texts[query] for query in relevant])
    index = WordIndex(texts)

    def by_cosine(number: int, text: str) -> np.ndarray:
        scores = np.full(len(texts), -np.inf)
        scores[written] = ours @ theirs[number]
        return scores

    ranked: dict[str, Callable[[int, str], np.ndarray]] = {
        "model": by_cosine,
        "bm25": lambda number, text: index.bm25(text),
        "tfidf": lambda number, text: index.tfidf(text),
    }
    values = {
        name: _values(score, {query: query_texts[query] for query in relevant}, relevant)
        for name, score in ranked.items()
    }
    means = {
        name: {measure: float(each.mean()) for measure, each in by_measure.items()}
        for name, by_measure in values.items()
    }
    return RetrievalScores(
        num_queries=len(relevant),
        num_documents=len(documents),
        scores=means.pop("model"),
        intervals={
            measure: interval(each, samples=samples) for measure, each in values["model"].items()
        },
        baselines=means,
        notes=notes,
    )


def _values(
    score: Callable[[int, str], np.ndarray],
    queries: Mapping[str, str],
    relevant: Mapping[str, Mapping[int, float]],
) -> dict[str, np.ndarray]:
    """Each measure of each query."""
    rankings = [
        np.argsort(-score(number, text), kind="stable")[:DEPTH].tolist()
        for number, text in enumerate(queries.values())
    ]
    return {
        name: np.array(
            [
                measure(ranking, relevant[query])
                for query, ranking in zip(queries, rankings, strict=True)
            ]
        )
        for name, measure in MEASURES.items()
    }


def _read_texts(path: StrPath) -> dict[str, str]:
    """The text of each key; a title stands before it."""
    texts: dict[str, str] = {}
    for location, row in read_rows(_existing(path)):
        key = _column(row, _ID, location)
        if not isinstance(row.get("text"), str):
            raise DataError(f"{location.in_full()}: the row has no text; expected _id and text")
        if key in texts:
            raise DataError(f"{location.in_full()}: {shorten(key)} occurs twice; keys are unique")
        texts[key] = f"{row.get('title') or ''} {row['text']}".strip()
    if not texts:
        raise DataError(f"{path}: there is no row; expected _id and text")
    return texts


def _read_judgments(
    path: StrPath, queries: Mapping[str, str], documents: Mapping[str, str]
) -> tuple[dict[str, dict[int, float]], tuple[str, ...]]:
    """The judgments of each query with a relevant document, by the number of the document; one
    that the corpus does not have counts as one that is never found."""
    numbers = {key: number for number, key in enumerate(documents)}
    judged: dict[str, dict[int, float]] = {}
    missing, unknown = 0, set[str]()
    for location, row in read_rows(_existing(path)):
        query, document = _column(row, _QUERY, location), _column(row, _DOCUMENT, location)
        try:
            gain = float(_column(row, _SCORE, location))
        except ValueError:
            raise DataError(f"{location.in_full()}: the score is no number") from None
        if query not in queries or not queries[query].strip():
            unknown.add(query)
            continue
        if document not in numbers:
            missing += 1
        judged.setdefault(query, {})[numbers.get(document, -1 - missing)] = gain
    relevant = {
        query: gains for query, gains in judged.items() if any(gain > 0 for gain in gains.values())
    }
    if not relevant:
        raise DataError(f"{path}: no query has a relevant document; do the files belong together?")
    notes = []
    if missing:
        notes.append(f"{missing:,} judged documents are not in the corpus and are never found")
    if unknown:
        notes.append(f"{len(unknown):,} judged queries have no text and are left out")
    return relevant, tuple(notes)


def _existing(path: StrPath) -> StrPath:
    if not os.path.isfile(path):
        raise DataError(f"{os.fspath(path)}: no such file")
    return path


def _column(row: Mapping[str, Any], names: str, location: Any) -> str:
    """The cell of the first of these columns that the row has, as text."""
    for name in names.split():
        if row.get(name) is not None:
            return str(row[name])
    raise DataError(
        f"{location.in_full()}: there is no column {names.split()[0]}; the row has: "
        f"{list_names(row, show=repr)}"
    )
