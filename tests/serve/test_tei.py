"""The endpoints of text-embeddings-inference, reranking and the metrics."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

import numpy as np
import pytest

from litebert.infer.predictor import Predictor, load
from litebert.loading import load_checkpoint
from litebert.serve.metrics import Metrics
from litebert.serve.models import Key, Models, ServedModel
from litebert.serve.scheduler import QueueSizes, Served, Tick
from litebert.tasks.task import EmbedCard, Task, TaskCard
from tests.helpers.models import save_model
from tests.helpers.serving import Running, serving

PAIR_LABELS = ("other", "relevant")
TEXTS = ["the baker sings", "a thief sleeps in the old house", "the baker"]


def test_embed(running: Running, predictor: Predictor) -> None:
    for normalize in (True, False):
        body = {"inputs": TEXTS, "normalize": normalize}
        vectors = running.ask("/embed", body).json
        np.testing.assert_allclose(vectors, predictor.embed(TEXTS, normalize=normalize), atol=1e-6)
    one = running.ask("/embed", {"inputs": TEXTS[0]}).json
    np.testing.assert_allclose(one, predictor.embed(TEXTS[:1], normalize=True), atol=1e-6)


def test_predict_reads_texts_and_pairs(running: Running, predictor: Predictor) -> None:
    expected: Any = [predictor.classify(TEXTS[0]), predictor.pair(TEXTS[0], TEXTS[1])]
    answers = [
        running.ask("/predict", {"inputs": inputs}).json
        for inputs in (TEXTS[0], [[TEXTS[0]]], TEXTS[:2], [TEXTS[:2]])
    ]
    assert answers[1] == [answers[0]]
    assert answers[3] == [answers[2]]
    for answer, each in zip((answers[0], answers[2]), expected, strict=True):
        scores = [row["score"] for row in answer]
        assert scores == sorted(scores, reverse=True)
        shares = {row["label"]: row["score"] for row in answer}
        assert shares == pytest.approx(each.probabilities, abs=2e-6)
    refused = running.ask("/predict", {"inputs": [["a"], ["b", "c"]]})
    assert refused.status == 400
    assert refused.json["error"].startswith("inputs is a text, a pair of texts, or a list")
    assert refused.json["error_type"] == "Validation"


UNAVAILABLE: list[tuple[str, Any, str]] = [
    ("raw_scores", True, "raw_scores is not available"),
    ("prompt_name", "query", "the models have no prompts"),
    ("truncation_direction", "Left", "texts are cut at their end alone"),
]


@pytest.mark.parametrize(("option", "value", "message"), UNAVAILABLE)
def test_options_that_would_have_no_effect_are_refused(
    option: str, value: Any, message: str, running: Running
) -> None:
    sentences = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    for path, body in (
        ("/embed", {"inputs": TEXTS, option: value}),
        ("/predict", {"inputs": TEXTS[0], option: value}),
        ("/rerank", {"query": TEXTS[0], "texts": TEXTS, option: value}),
        ("/similarity", {"inputs": sentences, "parameters": {option: value}}),
    ):
        refused = running.ask(path, body)
        assert (refused.status, message in refused.json["error"]) == (422, True), path
    defaults = {"raw_scores": False, "prompt_name": None, "truncation_direction": "Right"}
    assert running.ask("/embed", {"inputs": TEXTS, **defaults}).status == 200


def test_errors_name_the_field_of_the_client(running: Running) -> None:
    long = " ".join([TEXTS[0]] * 50)
    for path, body, field in (
        ("/embed", {"inputs": [TEXTS[0], long]}, "inputs[1]"),
        ("/predict", {"inputs": [[TEXTS[0]], [long]]}, "inputs[1]"),
        ("/rerank", {"query": TEXTS[0], "texts": [TEXTS[0], long]}, "texts[1]"),
        ("/rerank", {"query": long, "texts": TEXTS}, "query"),
        (
            "/similarity",
            {"inputs": {"source_sentence": TEXTS[0], "sentences": [long]}},
            "sentences[0]",
        ),
    ):
        refused = running.ask(path, body)
        assert refused.json["error"].startswith(f"{field} has "), refused.body
    refused = running.ask("/v1/rerank", {"query": TEXTS[0], "documents": [TEXTS[0], long]})
    assert refused.json["error"]["param"] == "documents[1]"


def test_similarity(running: Running, predictor: Predictor) -> None:
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    cosines = running.ask("/similarity", {"inputs": inputs}).json
    vectors = predictor.embed(TEXTS, normalize=True)
    np.testing.assert_allclose(cosines, vectors @ vectors[0], atol=1e-5)


def test_tokenize(running: Running, predictor: Predictor) -> None:
    text = "The  Baker sings"
    (tokens,) = running.ask("/tokenize", {"inputs": text}).json
    tokenizer = predictor.tokenizer
    ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
    assert [token["id"] for token in tokens] == ids
    assert [token["special"] for token in tokens] == [True, *[False] * (len(ids) - 2), True]
    for token in tokens[1:-1]:
        assert token["text"] == text[token["start"] : token["stop"]]
    (plain,) = running.ask("/tokenize", {"inputs": [text], "add_special_tokens": False}).json
    assert plain == tokens[1:-1]
    refused = running.ask("/tokenize", {"inputs": ["a " * 1000] * 201})
    assert refused.status == 413
    assert "one request has at most 200,000; send several" in refused.json["error"]


def test_rerank_by_cosine(running: Running) -> None:
    body = {"query": TEXTS[0], "texts": [TEXTS[1], TEXTS[0]], "return_text": True}
    answer = running.ask("/rerank", body)
    assert answer.headers["x-litebert-scored-by"] == "cosine"
    assert answer.headers["x-litebert-model"] == "tiny"
    assert [row["index"] for row in answer.json] == [1, 0]
    assert answer.json[0] == {"index": 1, "score": pytest.approx(1), "text": TEXTS[0]}
    body = {"query": TEXTS[0], "documents": [{"text": TEXTS[1]}, TEXTS[0]], "top_n": 1}
    cohere = running.ask("/v1/rerank", body | {"return_documents": True}).json
    assert cohere["meta"] == {"model": "tiny", "scored_by": "cosine"}
    assert cohere["results"] == [
        {"index": 1, "relevance_score": pytest.approx(1), "document": {"text": TEXTS[0]}}
    ]
    assert running.ask("/v1/rerank", {"query": "x"}).json["error"]["param"] == "documents"


def test_a_model_tuned_for_embeddings_embeds_wherever_it_stands(
    predictor: Predictor, tmp_path: Path
) -> None:
    save_model(tmp_path / "model", "masked")
    checkpoint, _ = load_checkpoint(tmp_path / "model")
    replace(checkpoint, task=EmbedCard().to_dict()).save(tmp_path / "tuned")
    tuned = load(tmp_path / "tuned", device="cpu", threads=1)
    with serving(Models([ServedModel("tiny", predictor), ServedModel("tuned", tuned)])) as running:
        body = {"query": TEXTS[0], "documents": TEXTS}
        assert running.ask("/v1/rerank", body).json["meta"]["model"] == "tuned"
        assert running.ask("/v1/embeddings", {"input": TEXTS}).json["model"] == "tuned"
        named = {"input": TEXTS, "model": "tiny"}
        assert running.ask("/v1/embeddings", named).json["model"] == "tiny"
        for verb in ("layers", "classify"):
            assert running.ask(f"/v1/{verb}", {"texts": TEXTS}).json["model"] == "tiny"


def test_rerank_takes_as_many_texts_as_any_request(running: Running) -> None:
    answer = running.ask("/rerank", {"query": "x", "texts": ["x"] * 2048})
    assert (answer.status, len(answer.json)) == (200, 2048)
    assert running.ask("/rerank", {"query": "x", "texts": ["x"] * 2049}).status == 413


def test_a_model_may_have_any_name(predictor: Predictor) -> None:
    name = "имя\r\nX-More: 1"
    with serving(Models([ServedModel(name, predictor)])) as running:
        answer = running.ask("/rerank", {"query": TEXTS[0], "texts": TEXTS})
        assert answer.status == 200
        assert unquote(answer.headers["x-litebert-model"]) == name
        assert "x-more" not in answer.headers
        (model,) = running.ask("/v1/models").json["data"]
        assert running.ask(f"/v1/models/{quote(name)}").json == model


def test_a_model_may_be_named_after_an_undecodable_folder(predictor: Predictor) -> None:
    with serving(Models([ServedModel("\udcff", predictor)])) as running:
        assert running.ask("/v1/classify", {"texts": TEXTS}).status == 200
        metrics = running.ask("/metrics")
    assert metrics.status == 200
    assert rb'litebert_texts_total{model="\\udcff",verb="classify"} 3' in metrics.body


@pytest.mark.parametrize("kind", ["pair", "regress"])
def test_rerank_by_a_model_of_pairs(
    kind: Literal["pair", "regress"], predictor: Predictor, tmp_path: Path
) -> None:
    head: Literal["classify", "regress"] = "classify" if kind == "pair" else "regress"
    task = Task(
        name="mine", kind=kind, scores=(), labels=PAIR_LABELS if kind == "pair" else (), head=head
    )
    card = TaskCard(task=task, max_length=64)
    scorer = load(
        save_model(tmp_path / kind, head, card=card, labels=PAIR_LABELS), device="cpu", threads=1
    )
    body = {"query": TEXTS[0], "documents": TEXTS}
    with serving(
        Models([ServedModel("tiny", predictor), ServedModel("scorer", scorer)])
    ) as running:
        answer = running.ask("/v1/rerank", body).json
        assert answer["meta"] == {"model": "scorer", "scored_by": kind}
        results: Any = getattr(scorer, kind)([TEXTS[0]] * len(TEXTS), TEXTS)
        scores = [each.probabilities["relevant"] if kind == "pair" else each for each in results]
        assert [row["index"] for row in answer["results"]] == np.argsort(scores)[::-1].tolist()
        ours = [row["relevance_score"] for row in answer["results"]]
        assert ours == pytest.approx(sorted(scores, reverse=True), abs=2e-6)
        other = running.ask("/v1/rerank", body | {"model": "tiny"}).json
        assert other["meta"]["scored_by"] == "cosine"


def test_a_pair_model_whose_labels_do_not_say_what_fits_does_not_rank(
    predictor: Predictor, tmp_path: Path
) -> None:
    task = Task(name="mine", kind="pair", scores=(), labels=("neutral", "other"), head="classify")
    card = TaskCard(task=task, max_length=64)
    folder = save_model(tmp_path / "pair", "classify", card=card, labels=("neutral", "other"))
    scorer = load(folder, device="cpu", threads=1)
    with serving(
        Models([ServedModel("scorer", scorer), ServedModel("tiny", predictor)])
    ) as running:
        answer = running.ask("/v1/rerank", {"query": TEXTS[0], "documents": TEXTS}).json
        assert answer["meta"]["scored_by"] == "cosine"


def test_metrics_count_and_are_valid(models: Models) -> None:
    with serving(models) as running:
        running.ask("/embed", {"inputs": TEXTS})
        running.ask("/v1/classify", {"texts": TEXTS})
        running.ask("/v1/classify", {})
        running.ask("/v1/nothing-here", {})
        text = running.ask("/metrics").body.decode()
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(
                r'([a-z_]+(?:\{[a-z_]+="[^"]*"(?:,[a-z_]+="[^"]*")*\})?) (\S+)', line
            )
            assert match, line
            values[match[1]] = float(match[2])
    assert values['te_request_count{method="embed"}'] == 1
    assert values['te_request_count{method="classify"}'] == 2
    assert values['te_request_success{method="classify"}'] == 1
    assert values['te_request_failure{err="invalid_request_error"}'] == 1
    assert values['litebert_requests_total{path="/v1/classify",status="400"}'] == 1
    assert values['litebert_texts_total{model="tiny",verb="embed"}'] == 3
    assert values["te_request_duration_count"] == 3
    assert values['te_request_duration_bucket{le="+Inf"}'] == 3
    assert values["te_batch_next_size_sum"] == 12  # six texts in two layers each
    assert values["te_request_queue_duration_count"] == 2
    assert values["te_request_inference_duration_count"] == 2
    assert values["te_queue_size"] == values["litebert_queue_tokens"] == 0
    assert values["litebert_ready"] == 1
    for name in re.findall(r"# TYPE (\S+)", text):
        assert f"# HELP {name} " in text
    assert "nothing-here" not in text
    dashboard = json.loads((Path(__file__).parents[2] / "docs/serve-grafana.json").read_text())
    queries = [each["expr"] for panel in dashboard["panels"] for each in panel["targets"]]
    assert len(queries) >= 6
    for name in re.findall(r"(?:te|litebert)_\w+", " ".join(queries)):
        assert any(known.startswith(name) for known in values), name


def test_counts_stay_exact_however_many_tokens_were_computed() -> None:
    metrics = Metrics()
    for tokens in (1_234_567_890, 1):
        metrics.count_served(Served(Key("tiny", "fill"), 1, tokens, 0.0, 0.1))
        metrics.count_tick(Tick(Key("tiny", "fill"), 1, tokens, 0.1))
    text = metrics.text(QueueSizes(0, 0), is_ready=True)
    assert 'litebert_tokens_total{model="tiny",verb="fill"} 1234567891\n' in text
    assert "te_batch_next_tokens_sum 1234567891\n" in text
