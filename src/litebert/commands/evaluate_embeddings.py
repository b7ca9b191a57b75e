"""litebert evaluate similarity and litebert evaluate retrieval: any model's vectors scored on pairs
that people scored, and on finding documents."""

from rich.console import Console
from rich.table import Table

from litebert.commands.flags import BatchTokens, Device, Json, Threads, Unverified, note
from litebert.config import Pooling
from litebert.files import to_json
from litebert.infer.predictor import Predictor, load
from litebert.infer.retrieval import score_retrieval
from litebert.infer.similarity import score_similarity
from litebert.tasks.tables.columns import TableOptions
from litebert.terminal import escape, write_line


def similarity(
    *,
    model: str,
    data: str,
    text: str | None = None,
    second: str | None = None,
    label: str | None = None,
    pooling: Pooling | None = None,
    dimensions: int | None = None,
    samples: int = 1000,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    threads: Threads = None,
    unverified: Unverified = False,
    json: Json = False,
) -> None:
    """Spearman's and Pearson's correlations of the cosines of a model's vectors with the scores
    that people gave pairs of texts. No fine-tuning is needed.

    Args:
        model: Folder of a checkpoint, a run or a Hugging Face model, or the name of an embedded
            model.
        data: A table with two texts and a score in each row, such as text_a, text_b and score.
        text: Column of the first text; columns without a flag are recognized by their names.
        second: Column of the second text.
        label: Column of the score.
        pooling: The mean of all tokens' states, or the state of [CLS]; by default as the model was
            trained, else the mean.
        dimensions: Keep the first so many numbers of each vector, a size that the model was trained
            for.
        samples: Bootstrap resamples for the intervals.
    """
    predictor = _load(model, batch_tokens, device, threads, unverified)
    scores = score_similarity(
        predictor,
        data,
        options=TableOptions(text=text, second=second, label=label),
        pooling=pooling,
        dimensions=dimensions,
        samples=samples,
    )
    if json:
        write_line(to_json({"model": model, "data": data} | scores.to_dict(), ensure_ascii=False))
        return
    for each in scores.notes:
        note(each)
    write_line(f"{scores.num_pairs:,} pairs")
    table = _table(model, "correlation", "95 % interval")
    for name, value in scores.scores.items():
        table.add_row(name, f"{100 * value:.1f}", _ends(scores.intervals.get(name)))
    Console(markup=False, emoji=False).print(table)


def retrieval(
    *,
    model: str,
    queries: str,
    corpus: str,
    qrels: str,
    pooling: Pooling | None = None,
    dimensions: int | None = None,
    samples: int = 1000,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    threads: Threads = None,
    unverified: Unverified = False,
    json: Json = False,
) -> None:
    """How well a model's vectors find documents by cosine: nDCG@10, MRR@10 and recall@100, beside
    BM25 and TF-IDF. No fine-tuning is needed.

    Args:
        model: Folder of a checkpoint, a run or a Hugging Face model, or the name of an embedded
            model.
        queries: A table with _id and text, such as BEIR's queries.jsonl.
        corpus: A table with _id, text and maybe title, such as BEIR's corpus.jsonl.
        qrels: A table with query-id, corpus-id and score, such as BEIR's qrels/test.tsv.
        pooling: The mean of all tokens' states, or the state of [CLS]; by default as the model was
            trained, else the mean.
        dimensions: Keep the first so many numbers of each vector, a size that the model was trained
            for.
        samples: Bootstrap resamples of the queries for the intervals.
    """
    predictor = _load(model, batch_tokens, device, threads, unverified)
    scores = score_retrieval(
        predictor,
        queries=queries,
        corpus=corpus,
        qrels=qrels,
        pooling=pooling,
        dimensions=dimensions,
        samples=samples,
    )
    if json:
        write_line(to_json({"model": model} | scores.to_dict(), ensure_ascii=False))
        return
    for each in scores.notes:
        note(each)
    write_line(f"{scores.num_queries:,} queries, {scores.num_documents:,} documents")
    table = _table("", "nDCG@10", "MRR@10", "recall@100")
    table.add_row(escape(model), *(f"{100 * value:.1f}" for value in scores.scores.values()))
    table.add_row("  95 % interval", *map(_ends, scores.intervals.values()), style="dim")
    for name, shown in (("bm25", "BM25"), ("tfidf", "TF-IDF")):
        table.add_row(shown, *(f"{100 * value:.1f}" for value in scores.baselines[name].values()))
    Console(markup=False, emoji=False).print(table)


def _load(
    model: str, batch_tokens: int | None, device: str, threads: int | None, unverified: bool
) -> Predictor:
    predictor = load(
        model, batch_tokens=batch_tokens, device=device, threads=threads, unverified=unverified
    )
    for each in predictor.notes:
        note(each)
    return predictor


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else "{:.1f}–{:.1f}".format(*(100 * end for end in interval))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(escape(columns[0]), overflow="fold", min_width=16)
    for name in columns[1:]:
        table.add_column(name, justify="right")
    return table
