"""litebert's and OpenAI's endpoints give what commands and the Predictor give."""

import base64
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from litebert import cli
from litebert.infer.layers import read_layers
from litebert.infer.predictor import Predictor, load
from litebert.infer.verbs import encode_masked, text_example
from litebert.loading import load_checkpoint
from litebert.serve.models import Models, ServedModel
from litebert.serve.verbs import read_work
from litebert.tasks.encode.encode import encode
from litebert.tasks.examples import Kind
from litebert.tasks.task import EmbedCard
from tests.helpers.models import save_model, texts
from tests.helpers.serving import HANGS, Running, serving
from tests.infer.test_exits import CALIBRATED, checkpoint_of

FIRST, SECOND = "the baker sings", "a thief sleeps in the old house"
ITEM = {"context": FIRST, "question": "who sings", "options": ["the baker", "a thief"]}

# verb, body, arguments of the command
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "fill",
        {"texts": [f"[MASK] {FIRST}", SECOND + " [MASK] [MASK]"], "top": 2},
        [f"[MASK] {FIRST}", SECOND + " [MASK] [MASK]", "--top", "2"],
    ),
    ("classify", {"texts": [FIRST, SECOND]}, [FIRST, SECOND]),
    ("pair", {"pairs": [[FIRST, SECOND]]}, [FIRST, SECOND]),
    ("regress", {"texts": [FIRST]}, [FIRST]),
    ("regress", {"pairs": [[FIRST, SECOND]]}, [FIRST, SECOND]),
    (
        "choose",
        {"items": [ITEM]},
        ["the baker", "a thief", "--context", FIRST, "--question", "who sings"],
    ),
    (
        "answer",
        {"items": [{"question": "who sings", "context": FIRST}]},
        ["who sings", "--context", FIRST],
    ),
    ("tag", {"texts": [FIRST, SECOND]}, [FIRST, SECOND]),
]


@pytest.mark.parametrize(("verb", "body", "args"), CASES)
def test_results_are_those_of_the_command(
    verb: str,
    body: dict[str, Any],
    args: list[str],
    running: Running,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = running.ask(f"/v1/{verb}", body)
    assert answer.status == 200, answer.body
    assert cli.run([verb, "--model", str(folder), "--device", "cpu", "--json", *args]) == 0
    printed = json.loads(capsys.readouterr().out)["answers"]
    assert answer.json["model"] == "tiny"
    assert _numbers(answer.json["results"]) == pytest.approx(_numbers(printed), abs=2e-6)
    assert _rest(answer.json["results"]) == _rest(printed)


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for each in value.values() for number in _numbers(each)]
    if isinstance(value, list):
        return [number for each in value for number in _numbers(each)]
    return [value] if isinstance(value, float) else []


def _rest(value: Any) -> Any:
    """Everything but numbers that are not whole."""
    if isinstance(value, dict):
        return {name: _rest(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rest(each) for each in value]
    return None if isinstance(value, float) else value


def test_words_may_come_as_lists(running: Running) -> None:
    split = running.ask("/v1/tag", {"texts": [FIRST.split()]}).json
    assert split == running.ask("/v1/tag", {"texts": [FIRST]}).json


def test_more_texts_than_a_batch_holds_are_split_and_keep_their_order(
    running: Running, predictor: Predictor
) -> None:
    many = texts(400)
    body = {"texts": many, "truncate": True, "model": "tiny"}
    results = running.ask("/v1/classify", body).json["results"]
    direct = predictor.classify(many)
    assert [result["text"] for result in results] == many
    ours = [list(result["probabilities"].values()) for result in results]
    theirs = [list(each.probabilities.values()) for each in direct]  # type: ignore[union-attr]
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_a_text_that_is_too_long_is_refused_unless_it_may_be_cut(
    running: Running, predictor: Predictor
) -> None:
    long = " ".join([FIRST] * 50)
    refused = running.ask("/v1/classify", {"texts": [FIRST, long]})
    assert refused.status == 422
    assert refused.json["error"]["code"] == "context_length_exceeded"
    assert refused.json["error"]["param"] == "texts[1]"
    assert "tokens, the model reads 64; shorten it, or send" in refused.message
    cut = running.ask("/v1/classify", {"texts": [long], "truncate": True}).json["results"][0]
    expected = predictor.classify(long).probabilities
    assert cut["probabilities"] == pytest.approx(expected, abs=2e-6)
    for verb, body in (
        ("answer", {"items": [{"question": "who sings", "context": long}]}),
        ("tag", {"texts": [long]}),
    ):  # these read windows
        assert running.ask(f"/v1/{verb}", body).status == 200


def test_questions_are_cut_only_when_asked(running: Running) -> None:
    """Half of a row is theirs at most, the other half is the context's."""
    long = " ".join([FIRST] * 8)
    answer = {"question": long, "context": FIRST}
    choose = {"context": FIRST, "question": long, "options": ["the baker", "a thief"]}
    for verb, item, what in (
        ("answer", answer, "tokens, the model reads 30; shorten it"),
        ("choose", choose, "tokens with its longest option, the model reads 30; shorten it"),
    ):
        refused = running.ask(f"/v1/{verb}", {"items": [item]})
        assert (refused.status, what in refused.message) == (422, True), refused.body
        assert refused.json["error"]["code"] == "context_length_exceeded"
        assert refused.json["error"]["param"] == "items[0].question"
        assert running.ask(f"/v1/{verb}", {"items": [item], "truncate": True}).status == 200


def test_a_mask_is_one_token(running: Running, predictor: Predictor) -> None:
    text = "[MASK]. " * 30
    size = len(encode_masked(predictor.tokenizer, text, max_length=None))
    assert size <= 64 < len(predictor.tokenizer.encode(text))
    work = read_work("fill", {"texts": [text]}, ServedModel("tiny", predictor))
    assert work.sizes == [size]
    (result,) = running.ask("/v1/fill", {"texts": [text], "top": 1}).json["results"]
    assert len(result["masks"]) == 30
    refused = running.ask("/v1/fill", {"texts": ["[MASK] " + "the baker " * 40]})
    assert "texts[0] has 83 tokens, the model reads 64; shorten it, or send" in refused.message
    late = running.ask("/v1/fill", {"texts": ["the baker " * 40 + "[MASK]"], "truncate": True})
    assert (late.status, late.message[:19]) == (422, "a [MASK] is token 8")


@pytest.mark.parametrize("verb", ["answer", "tag", "choose"])
def test_all_rows_of_an_item_are_counted(verb: Kind, predictor: Predictor) -> None:
    long = " ".join([FIRST] * 50)
    answers = [{"question": "who sings", "context": text} for text in (FIRST, long)]
    body: dict[str, Any] = {
        "answer": {"items": answers},
        "tag": {"texts": [FIRST, long]},
        "choose": {"items": [ITEM, ITEM | {"options": ["the baker", "he"] * 20}]},
    }[verb]
    work = read_work(verb, body, ServedModel("tiny", predictor))
    inputs = [encode(predictor.cards[verb], [item], predictor.tokenizer) for item in work.items]
    read = [int(each.row_lengths.sum()) for each in inputs]
    assert all(one <= size <= one * 1.2 for one, size in zip(read, work.sizes, strict=True))
    assert verb == "choose" or read == work.sizes


def test_layers_are_those_of_the_predictor(running: Running, predictor: Predictor) -> None:
    examples = [text_example(FIRST), text_example(SECOND)]
    results = running.ask("/v1/layers", {"texts": [FIRST, SECOND]}).json["results"]
    expected = [reading.to_dict() for reading in read_layers(predictor, examples)]
    assert _numbers(results) == pytest.approx(_numbers(expected), abs=2e-5)
    assert [each["first"] for each in results] == [FIRST, SECOND]
    assert [len(each["l2"]) for each in results] == [2, 2]
    (pair,) = running.ask("/v1/layers", {"pairs": [[FIRST, SECOND]]}).json["results"]
    assert (pair["second"], pair["exits"]) == (SECOND, None)
    assert pair["tokens"] == sum(each["tokens"] for each in results) - 1
    long = " ".join([FIRST] * 50)
    assert running.ask("/v1/layers", {"texts": [long]}).status == 422
    (cut,) = running.ask("/v1/layers", {"texts": [long], "truncate": True}).json["results"]
    assert cut["tokens"] == 64
    both = running.ask("/v1/layers", {"texts": [FIRST], "pairs": [[FIRST, SECOND]]})
    assert (both.status, both.message) == (400, "send either texts or pairs, not both")


def test_layers_of_a_model_with_exits_say_where_a_text_leaves(tmp_path: Path) -> None:
    predictor = load(checkpoint_of(tmp_path, "classify", "each").save(tmp_path / "model"))
    predictor.leave_early("patience", 1.0)
    with serving(Models([ServedModel("exits", predictor)])) as service:
        (model,) = service.ask("/v1/models").json["data"]
        (result,) = service.ask("/v1/layers", {"texts": [FIRST]}).json["results"]
        (label,) = service.ask("/v1/classify", {"texts": [FIRST]}).json["results"]
    assert (model["layers"], model["exits"]) == (4, True)
    leaves = result["exits"]["leaves"]
    assert leaves["confidence"]["threshold"] == CALIBRATED["confidence"]["threshold"]
    assert leaves["patience"] == {"threshold": 1.0, "depth": label["depth"]}
    answers = result["exits"]["answers"]
    assert [set(each) for each in answers] == [{"label", "probabilities"}] * 4
    expected = pytest.approx(label["probabilities"], abs=2e-5)
    assert answers[label["depth"] - 1]["probabilities"] == expected


def test_openai_client(running: Running, predictor: Predictor) -> None:
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
        listed = client.models.list().data
        assert [each.id for each in listed] == ["tiny"]
        assert client.models.retrieve("tiny") == listed[0]
        with pytest.raises(openai.NotFoundError, match="there is no model 'other' here"):
            client.models.retrieve("other")
        expected = predictor.embed([FIRST, SECOND], normalize=True)
        for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
            made: Any = client.embeddings.create(
                model="tiny", input=[FIRST, SECOND], dimensions=32, **options
            )
            vectors = [each.embedding for each in made.data]
            if isinstance(vectors[0], str):
                vectors = [np.frombuffer(base64.b64decode(each), "<f4") for each in vectors]
            np.testing.assert_allclose(vectors, expected, atol=1e-6)
            tokens = sum(map(len, predictor.tokenizer.encode_batch([FIRST, SECOND]))) + 4
            assert made.usage.prompt_tokens == made.usage.total_tokens == tokens
        with pytest.raises(openai.NotFoundError, match="there is no model 'other' here"):
            client.embeddings.create(model="other", input=FIRST)
        with pytest.raises(openai.BadRequestError, match="for vectors of 32 numbers alone"):
            client.embeddings.create(model="tiny", input=FIRST, dimensions=8)
        with pytest.raises(openai.BadRequestError, match="holds token ids"):
            client.embeddings.create(model="tiny", input=[[1, 2]])


def test_embeddings_are_pooled_and_cut_as_the_model_was_trained(
    tmp_path: Path,
) -> None:
    folder = save_model(tmp_path / "model", "masked")
    checkpoint, _ = load_checkpoint(folder)
    card = EmbedCard(pooling="cls", normalize=True, dimensions=(8, 16))
    replace(checkpoint, task=card.to_dict()).save(tmp_path / "tuned")
    tuned = load(tmp_path / "tuned", device="cpu", threads=1)
    with serving(Models([ServedModel("tuned", tuned)])) as running:
        for size in (8, 32):
            expected = tuned.embed([FIRST, SECOND], dimensions=size)
            body = {"input": [FIRST, SECOND], "dimensions": size}
            data = running.ask("/v1/embeddings", body).json["data"]
            np.testing.assert_allclose([each["embedding"] for each in data], expected, atol=1e-6)
            body = {"inputs": [FIRST, SECOND], "dimensions": size}
            np.testing.assert_allclose(running.ask("/embed", body).json, expected, atol=1e-6)
        for path, name in (("/v1/embeddings", "input"), ("/embed", "inputs")):
            for wrong in (9, True, "8"):
                answer = running.ask(path, {name: FIRST, "dimensions": wrong})
                assert answer.status in (400, 422)
                assert "was trained for vectors of 8, 16, 32 numbers alone" in answer.body.decode()


def test_the_list_of_models_is_what_the_page_reads(running: Running) -> None:
    (model,) = running.ask("/v1/models").json["data"]
    assert model == {
        "id": "tiny",
        "object": "model",
        "created": pytest.approx(time.time(), abs=HANGS),
        "owned_by": "litebert",
        "verbs": ["fill", "embed", "classify", "pair", "regress", "choose", "answer", "tag"],
        "labels": ["bad", "fair", "good"],
        "max_length": 64,
        "layers": 2,
        "exits": False,
        "tuned_to_embed": False,
        "engine": "torch",
        "int8": False,
    }


def test_openapi_names_every_path(running: Running) -> None:
    document = running.ask("/openapi.json").json
    for path, methods in document["paths"].items():
        (method,) = methods
        path = path.replace("{model}", "tiny")
        status = running.ask(path, {} if method == "post" else None).status
        assert status in (200, 400), path
        refused = running.ask(path, method="DELETE")
        assert refused.status == 405
        assert method.upper() in refused.headers["allow"].split(", ")
    refused = running.ask("/v1/fill", method="DELETE")
    assert refused.message.startswith("this path is called with another method; GET /openapi.json")
    assert running.ask("/v1/nothing").message.startswith("there is nothing at this path")
