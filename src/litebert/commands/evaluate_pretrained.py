"""litebert evaluate masked, blimp, similarity and retrieval: a model without fine-tuning in; its
scores on masked tokens of a text, minimal pairs, scored pairs of texts or documents out."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from litebert.commands.marks import (
    AnyModel,
    BatchTokens,
    Device,
    Json,
    Kernels,
    LayerDType,
    Threads,
    Unverified,
    note,
)
from litebert.commands.tables import open_console, score_table
from litebert.config import Pooling
from litebert.files import to_json
from litebert.infer.blimp import Accuracy, BlimpScores, score_blimp
from litebert.infer.masked_scores import MaskedOptions, MaskedScores, score_masked
from litebert.infer.predictor import Predictor, load
from litebert.infer.vector_scores import score_retrieval, score_similarity
from litebert.tasks.tables.columns import TableOptions
from litebert.terminal import Progress, escape, write_line

if TYPE_CHECKING:
    from litebert.infer.torch_engine import TorchEngine


class _FillLoading(NamedTuple):
    batch_tokens: BatchTokens = None
    dtype: LayerDType = "auto"
    device: Device = "auto"
    kernels: Kernels = "on"
    threads: Threads = None
    unverified: Unverified = False


class _VectorLoading(NamedTuple):
    batch_tokens: BatchTokens = None
    device: Device = "auto"
    threads: Threads = None
    unverified: Unverified = False


def masked(
    *,
    model: AnyModel,
    data: str,
    text: MaskedOptions,
    loading: _FillLoading,
    json: Json = False,
) -> None:
    """Loss, accuracy and perplexity of masked tokens of a text, for any model with a masked-token
    head, beside those of a unigram model.

    By default whole words are masked, 15 % of the tokens, in runs of up to three words, and
    replaced as in pretraining: 80 % by [MASK], 10 % by a random token, 10 % not at all. With the
    run's own shards, --split heldout, its --order, --max-length, --max-ngram and
    --heldout-fraction, and --tokens as its evaluate_tokens (1,000,000 by default), the scores are
    those of the run.

    Args:
        data: File, folder or glob of .txt, .jsonl or .parquet, plain or compressed, as for `data
            build`; or a folder of shards.
    """
    engine = _filler(model, loading)
    scores = score_masked(engine, data, text, on_progress=_progress("{:.0%} of the examples"))
    note(*scores.notes)
    if json:
        write_line(to_json({"model": model, "data": data} | scores.to_dict(), ensure_ascii=False))
    else:
        _print_masked(model, scores)


def blimp(
    *,
    model: AnyModel,
    data: str,
    limit: int | None = None,
    within_word: bool = False,
    bad_rows: Literal["error", "skip"] = "error",
    loading: _FillLoading,
    json: Json = False,
) -> None:
    """Accuracy on minimal pairs (BLiMP) without fine-tuning: how often the acceptable sentence has
    the higher pseudo-log-likelihood. Chance is 50 %.

    The pseudo-log-likelihood sums, over the tokens of a sentence, the log-probability of each where
    it alone is masked; it is not divided by the length.

    Args:
        data: Folder of BLiMP's JSONL files, or one file; .tsv, .csv and .parquet with columns good,
            bad, paradigm, term and field are read as well.
        limit: Score the first N pairs of each paradigm; by default all.
        within_word: Mask the later tokens of a word together with each of its tokens, so that the
            end of a word does not give its beginning away (PLL-word-l2r).
        bad_rows: What to do with a row without two sentences: stop, or skip it.
    """
    engine = _filler(model, loading)
    scores = score_blimp(
        engine,
        data,
        limit=limit,
        within_word=within_word,
        bad_rows=bad_rows,
        on_progress=_progress("{:,} pairs"),
    )
    note(*scores.notes)
    if json:
        write_line(to_json({"model": model, "data": data} | scores.to_dict(), ensure_ascii=False))
    else:
        _print_blimp(model, scores)


def similarity(
    *,
    model: AnyModel,
    data: str,
    text: str | None = None,
    second: str | None = None,
    label: str | None = None,
    pooling: Pooling | None = None,
    dimensions: int | None = None,
    samples: int = 1000,
    loading: _VectorLoading,
    json: Json = False,
) -> None:
    """Spearman's and Pearson's correlations of the cosines of a model's vectors with the scores
    that people gave pairs of texts. No fine-tuning is needed.

    Args:
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
    predictor = _load(model, **loading._asdict())
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
    note(*scores.notes)
    write_line(f"{scores.num_pairs:,} pairs")
    table = score_table(escape(model), "correlation", "95 % interval", width=16)
    for name, value in scores.scores.items():
        table.add_row(name, f"{100 * value:.1f}", _percentages(scores.intervals.get(name)))
    open_console().print(table)


def retrieval(
    *,
    model: AnyModel,
    queries: str,
    corpus: str,
    qrels: str,
    pooling: Pooling | None = None,
    dimensions: int | None = None,
    samples: int = 1000,
    loading: _VectorLoading,
    json: Json = False,
) -> None:
    """How well a model's vectors find documents by cosine: nDCG@10, MRR@10 and recall@100, beside
    BM25 and TF-IDF. No fine-tuning is needed.

    Args:
        queries: A table with _id and text, such as BEIR's queries.jsonl.
        corpus: A table with _id, text and maybe title, such as BEIR's corpus.jsonl.
        qrels: A table with query-id, corpus-id and score, such as BEIR's qrels/test.tsv.
        pooling: The mean of all tokens' states, or the state of [CLS]; by default as the model was
            trained, else the mean.
        dimensions: Keep the first so many numbers of each vector, a size that the model was trained
            for.
        samples: Bootstrap resamples of the queries for the intervals.
    """
    predictor = _load(model, **loading._asdict())
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
    note(*scores.notes)
    write_line(f"{scores.num_queries:,} queries, {scores.num_documents:,} documents")
    table = score_table("", "nDCG@10", "MRR@10", "recall@100", width=16)
    table.add_row(escape(model), *(f"{100 * value:.1f}" for value in scores.scores.values()))
    table.add_row("  95 % interval", *map(_percentages, scores.intervals.values()), style="dim")
    for name, shown in (("bm25", "BM25"), ("tfidf", "TF-IDF")):
        table.add_row(shown, *(f"{100 * value:.1f}" for value in scores.baselines[name].values()))
    open_console().print(table)


def _load(model: str, **options: Any) -> Predictor:
    predictor = load(model, **options)
    note(*predictor.notes)
    return predictor


def _filler(model: str, loading: _FillLoading) -> "TorchEngine":
    """The torch engine of a model with a masked-token head."""
    engine = _load(model, engine="torch", **loading._asdict()).torch_engine
    engine.filler.head("masked")  # before the text is read
    return engine


def _progress(line: str) -> Progress:
    return Progress(lambda seconds, done: line.format(done), every_seconds=10.0)


def _percentages(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else "{:.1f}–{:.1f}".format(*(100 * end for end in interval))


def _print_masked(model: str, scores: MaskedScores) -> None:
    table = score_table("", "loss", "accuracy", "perplexity")
    for name, each in ((model, scores.model), ("unigram frequencies", scores.unigram)):
        table.add_row(
            escape(name), f"{each.loss:.3f}", f"{100 * each.accuracy:.1f}", f"{each.perplexity:.1f}"
        )
        if each is scores.model and scores.intervals:
            ends = scores.intervals
            table.add_row(
                "  95 % interval",
                "{:.3f}–{:.3f}".format(*ends["loss"]),
                _percentages(ends["accuracy"]),
                "{:.1f}–{:.1f}".format(*ends["perplexity"]),
                style="dim",
            )
    options = scores.options
    run = f"runs of up to {options.max_ngram} {options.mask_units}" if options.max_ngram > 1 else ""
    write_line(
        f"{scores.num_masked:,} masked tokens ({run or 'single ' + options.mask_units}) of "
        f"{scores.num_tokens:,}, in {scores.num_examples:,} examples of up to {options.max_length} "
        f"tokens from {scores.num_documents:,} documents"
    )
    open_console().print(table)


def _print_blimp(model: str, scores: BlimpScores) -> None:
    table = score_table(escape(model), "accuracy", "95 % interval", "pairs")

    def add(name: str, each: Accuracy, *, style: str = "") -> None:
        cells = f"{100 * each.accuracy:.1f}", _percentages(each.interval), f"{each.num_pairs:,}"
        table.add_row(escape(name), *cells, style=style)

    for group in (scores.paradigms, scores.terms, scores.fields):
        for name, each in group.items():
            add(name, each)
        table.add_section()
        table.add_row("")
    add("overall", scores.overall, style="bold")
    open_console().print(table)
