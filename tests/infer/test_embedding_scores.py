"""litebert evaluate similarity and retrieval: equal to scipy's and to the definition on a model's
own vectors, on the command line and in Python; and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

import litebert
from litebert import cli
from litebert.errors import ConfigError, DataError
from litebert.infer.predictor import Predictor
from litebert.infer.vector_scores import score_retrieval, score_similarity
from tests.helpers.finetuning import source
from tests.helpers.models import SENTENCES

TEXTS = SENTENCES[:6]
PAIRS = [  # each once, and none with itself: equal cosines differ by rounding, so their ranks do
    {"text_a": TEXTS[i], "text_b": TEXTS[j], "score": j - i}
    for j in range(len(TEXTS))
    for i in range(j)
]


def write(folder: Path) -> dict[str, str]:
    """Six documents, one of them empty; three queries, the third without a relevant document."""
    documents = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(TEXTS)]
    documents[4] |= {"title": documents[4]["text"], "text": ""}
    documents.append({"_id": "none", "title": "", "text": ""})
    queries = [{"_id": f"q{n}", "text": text} for n, text in enumerate(TEXTS[:3])]
    judged = ["q0\td0\t1", "q0\td3\t2", "q1\td4\t1", "q1\tgone\t1", "q2\td1\t0"]
    files = {
        "queries": ("queries.jsonl", "\n".join(map(json.dumps, queries))),
        "corpus": ("corpus.jsonl", "\n".join(map(json.dumps, documents))),
        "qrels": ("test.tsv", "\n".join(["query-id\tcorpus-id\tscore", *judged])),
    }
    for name, text in files.values():
        (folder / name).write_text(text + "\n")
    return {key: str(folder / name) for key, (name, _) in files.items()}


def test_similarity_is_the_correlation_of_cosines(model: Predictor) -> None:
    scores = score_similarity(model, PAIRS, samples=200)
    first, second = (
        model.embed([str(row[name]) for row in PAIRS], normalize=True)
        for name in ("text_a", "text_b")
    )
    cosines = (first.astype(np.float64) * second).sum(1)
    truth = [row["score"] for row in PAIRS]
    assert scores.num_pairs == len(PAIRS)
    assert scores.scores["spearman"] == pytest.approx(spearmanr(truth, cosines).statistic, abs=1e-6)
    assert scores.scores["pearson"] == pytest.approx(pearsonr(truth, cosines).statistic, abs=1e-6)
    low, high = scores.intervals["spearman"]
    assert low < scores.scores["spearman"] < high
    assert score_similarity(model, PAIRS, pooling="cls", samples=2).scores != scores.scores


def test_retrieval_by_hand(model: Predictor, tmp_path: Path) -> None:
    scores = score_retrieval(model, **write(tmp_path))
    assert (scores.num_queries, scores.num_documents) == (2, 7)
    vectors = model.embed(TEXTS, normalize=True)
    ranks = [np.argsort(-(vectors @ vectors[query]), kind="stable").tolist() for query in (0, 1)]
    assert ranks[0][0] == 0  # a text finds itself
    discount = [1 / np.log2(rank + 2) for rank in range(6)]
    gained = discount[0] + 2 * discount[ranks[0].index(3)]
    first = gained / (2 * discount[0] + discount[1])
    second = discount[ranks[1].index(4)] / (discount[0] + discount[1])
    assert scores.scores["ndcg_at_10"] == pytest.approx((first + second) / 2)
    assert scores.scores["mrr_at_10"] == pytest.approx((1 + 1 / (ranks[1].index(4) + 1)) / 2)
    assert scores.scores["recall_at_100"] == pytest.approx((1 + 0.5) / 2)
    assert scores.baselines.keys() == {"bm25", "tfidf"}
    assert scores.baselines["bm25"]["recall_at_100"] == pytest.approx(0.75)
    assert scores.notes == ("1 judged documents are not in the corpus and are never found",)
    low, high = scores.intervals["ndcg_at_10"]
    assert low <= scores.scores["ndcg_at_10"] <= high


def test_the_commands_and_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(source().save(tmp_path / "model"))
    table = tmp_path / "pairs.jsonl"
    table.write_text("\n".join(map(json.dumps, PAIRS)) + "\n")
    flags = ["--model", model, "--device", "cpu", "--samples", "50"]
    similarity = ["evaluate", "similarity", *flags, "--data", str(table)]
    assert cli.run(similarity) == 0
    assert "spearman" in capsys.readouterr().out
    assert cli.run([*similarity, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    again = litebert.evaluate("similarity", model=model, data=PAIRS, samples=50, device="cpu")
    assert printed["scores"] == pytest.approx(again.scores)
    files = write(tmp_path)
    named = [part for name, path in files.items() for part in (f"--{name}", path)]
    assert cli.run(["evaluate", "retrieval", *flags, *named]) == 0
    shown = capsys.readouterr().out
    assert "2 queries, 7 documents" in shown
    assert "BM25" in shown
    assert cli.run(["evaluate", "retrieval", *flags, *named, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    scores = litebert.evaluate("retrieval", model=model, samples=50, device="cpu", **files)
    assert printed["scores"] == pytest.approx(scores.scores)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("qrels", "query-id\tcorpus-id\tscore\nq0\td0\t0\n", "no query has a relevant document"),
        ("qrels", "query-id\tcorpus-id\tscore\nq0\td0\tx\n", "the score is no number"),
        ("qrels", "query-id\tother\tscore\nq0\td0\t1\n", "there is no column corpus-id"),
        ("corpus", '{"_id": "d0"}\n', "the row has no text"),
        ("corpus", '{"_id": "d0", "text": ""}\n', "no document has a text"),
        ("queries", '{"_id": "q0", "text": "a"}\n' * 2, "'q0' occurs twice"),
    ],
)
def test_what_is_refused(
    model: Predictor, tmp_path: Path, file: str, text: str, message: str
) -> None:
    files = write(tmp_path)
    Path(files[file]).write_text(text)
    with pytest.raises(DataError, match=message):
        score_retrieval(model, **files)


def test_missing_files_and_no_samples(model: Predictor, tmp_path: Path) -> None:
    files: dict[str, Any] = write(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        score_retrieval(model, **files | {"corpus": tmp_path / "absent.jsonl"})
    with pytest.raises(ConfigError, match="samples is a number from 1; got 0"):
        score_retrieval(model, samples=0, **files)
    with pytest.raises(ConfigError, match="samples is a number from 1; got 0"):
        score_similarity(model, PAIRS, samples=0)
