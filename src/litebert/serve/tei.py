"""The endpoints of text-embeddings-inference, /embed, /predict, /rerank, /similarity and /tokenize,
and Cohere's form of reranking at /v1/rerank.

Reranking scores a query beside each text: by a model for pairs whose labels say what is relevant,
by a regression model, else by the cosine of embeddings. The response says by which.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

import numpy as np

from litebert.infer.verbs import Verb
from litebert.serve.models import ServedModel
from litebert.serve.openai import embed_work, named_work, normalized, read_dimensions
from litebert.serve.requests import (
    MAX_ITEMS,
    MAX_TOKENIZED,
    RequestError,
    read_flag,
    read_list,
    read_number,
    read_object_field,
    read_text,
)
from litebert.serve.verbs import read_work

if TYPE_CHECKING:
    from litebert.serve.app import Call, Service

_Body = dict[str, Any]
_RELEVANT = ("relevant", "entailment", "equivalent", "duplicate", "yes", "true", "1")
"""Labels of a pair model whose probability says how well a text fits a query."""
_SCORED_BY, _SCORED_MODEL = "x-litebert-scored-by", "x-litebert-model"


def error_object(error: RequestError) -> dict[str, Any]:
    kind = "Validation"
    if error.status == 429:
        kind = "Overloaded"
    elif error.status >= 500:
        kind = "Backend"
    return {"error": error.message, "error_type": kind}


async def embed(service: "Service", body: _Body, call: "Call") -> Any:
    _check_options(body)
    model = service.models.choose(body.get("model"), "embed")
    dimensions = read_dimensions(body, model)
    work = await call.read(embed_work, _inputs(body), "inputs", body, model)
    vectors = np.stack(await service.run(work, call))[:, :dimensions]
    return (normalized(vectors) if read_flag(body, "normalize", True) else vectors).tolist()


async def predict(service: "Service", body: _Body, call: "Call") -> Any:
    """For each text, or pair of texts, every label with its probability, the likeliest first."""
    _check_options(body)
    inputs: Any = body.get("inputs")
    is_single = isinstance(inputs, str) or (
        isinstance(inputs, list) and bool(inputs) and all(isinstance(x, str) for x in inputs)
    )
    rows = [inputs] if is_single else read_list(body, "inputs")
    rows = [[row] if isinstance(row, str) else row for row in rows]
    sizes = {len(row) if isinstance(row, list) else 0 for row in rows}
    if sizes not in ({1}, {2}):
        raise RequestError(
            400,
            "inputs is a text, a pair of texts, or a list of lists with one text each or two each",
            param="inputs",
        )
    verb: Verb = "pair" if sizes == {2} else "classify"
    model = service.models.choose(body.get("model"), verb)
    wanted = {"pairs": rows} if verb == "pair" else {"texts": [row[0] for row in rows]}
    fields = wanted | {"truncate": body.get("truncate")}
    work = await call.read(read_work, verb, fields, model, "inputs")
    results = [_scored(result["probabilities"]) for result in await service.run(work, call)]
    return results[0] if is_single else results


async def similarity(service: "Service", body: _Body, call: "Call") -> Any:
    """The cosine of one sentence with each of several."""
    inputs = read_object_field(body.get("inputs"), "inputs", ("source_sentence", "sentences"))
    parameters = body.get("parameters")
    options = parameters if isinstance(parameters, dict) else {}
    _check_options(options)
    sentences = read_list(inputs, "sentences")
    source = read_text(inputs["source_sentence"], "source_sentence")
    model = service.models.choose(body.get("model"), "embed")
    names = ("source_sentence", "sentences")
    return await _cosines(service, model, source, sentences, names, body | options, call)


async def tokenize(service: "Service", body: _Body, call: "Call") -> Any:
    """The tokens of each text, with their characters."""
    model = service.models.choose(body.get("model"), "embed")
    texts = [read_text(text, f"inputs[{i}]") for i, text in enumerate(_inputs(body))]
    special = read_flag(body, "add_special_tokens", True)
    return await call.read(_tokens, model, texts, special)


async def rerank(service: "Service", body: _Body, call: "Call") -> Any:
    """TEI's form: a list of indices with scores, the best first."""
    _check_options(body)
    texts = read_list(body, "texts")
    ranking = await _rank(service, body, texts, "texts", call)
    call.headers.update(
        {_SCORED_BY: ranking.scored_by, _SCORED_MODEL: quote(ranking.model, errors="surrogatepass")}
    )
    with_text = read_flag(body, "return_text")
    return [
        {"index": index, "score": score, **({"text": texts[index]} if with_text else {})}
        for index, score in ranking.order
    ]


async def cohere_rerank(service: "Service", body: _Body, call: "Call") -> Any:
    documents = read_list(body, "documents")
    texts = [each.get("text") if isinstance(each, dict) else each for each in documents]
    top = read_number(body, "top_n", len(texts), MAX_ITEMS)
    with_text = read_flag(body, "return_documents")
    ranking = await _rank(service, body, texts, "documents", call)
    return {
        "id": call.identifier,
        "results": [
            {
                "index": index,
                "relevance_score": score,
                **({"document": {"text": texts[index]}} if with_text else {}),
            }
            for index, score in ranking.order[:top]
        ],
        "meta": {"model": ranking.model, "scored_by": ranking.scored_by},
    }


class _Ranking(NamedTuple):
    order: list[tuple[int, float]]
    """Numbers of texts with their scores, the best first."""
    scored_by: Literal["pair", "regress", "cosine"]
    model: str


async def _rank(
    service: "Service", body: _Body, texts: Sequence[Any], name: str, call: "Call"
) -> _Ranking:
    """`name` is the field that holds the texts."""
    query = read_text(body.get("query"), "query")
    model, verb = _ranker(service, body.get("model"))
    if verb == "embed":
        scores = await _cosines(service, model, query, texts, ("query", name), body, call)
    else:
        pairs = [[query, read_text(text, f"{name}[{i}]")] for i, text in enumerate(texts)]
        fields = {"pairs": pairs, "truncate": body.get("truncate")}
        results = await service.run(await call.read(read_work, verb, fields, model, name), call)
        label = _relevant_label(model)
        scores = [
            each["value"] if verb == "regress" else each["probabilities"][label] for each in results
        ]
    order = sorted(enumerate(scores), key=lambda each: -each[1])
    return _Ranking(order, "cosine" if verb == "embed" else verb, model.name)


def _ranker(
    service: "Service", name: Any
) -> tuple[ServedModel, Literal["pair", "regress", "embed"]]:
    served = list(service.models.served.values())
    if name is not None:
        served = [service.models.choose(name, "embed")]
    for model in served:
        if _relevant_label(model) is not None:
            return model, "pair"
    for model in served:
        if model.predictor.card is not None and "regress" in model.verbs:
            return model, "regress"
    return service.models.choose(name, "embed"), "embed"


def _relevant_label(model: ServedModel) -> str | None:
    """The label that says how well a text fits; None unless the model was trained for pairs."""
    card = model.predictor.card
    if card is None or card.task.kind != "pair":
        return None
    names = {label.lower(): label for label in card.task.labels}
    return next((names[name] for name in _RELEVANT if name in names), None)


async def _cosines(
    service: "Service",
    model: ServedModel,
    source: str,
    texts: Sequence[Any],
    names: tuple[str, str],
    body: _Body,
    call: "Call",
) -> list[float]:
    """`names` are the fields of the source and of the texts."""
    each = [names[0], *(f"{names[1]}[{number}]" for number in range(len(texts)))]
    work = await call.read(named_work, [source, *texts], each, body, model)
    first, *others = normalized(np.stack(await service.run(work, call)))
    cosines: list[float] = (np.stack(others) @ first).clip(-1, 1).tolist()
    return cosines


def _check_options(body: _Body) -> None:
    """Refuse what TEI knows and would have no effect here."""
    if read_flag(body, "raw_scores"):
        raise RequestError(422, "raw_scores is not available; leave it out", param="raw_scores")
    if body.get("prompt_name") is not None:
        raise RequestError(
            422, "the models have no prompts; leave prompt_name out", param="prompt_name"
        )
    if body.get("truncation_direction") not in (None, "right", "Right"):
        raise RequestError(
            422,
            "texts are cut at their end alone; truncation_direction is Right",
            param="truncation_direction",
        )


def _inputs(body: _Body) -> list[Any]:
    """One text, or a list."""
    inputs = body.get("inputs")
    return [inputs] if isinstance(inputs, str) else read_list(body, "inputs")


def _scored(probabilities: dict[str, float]) -> list[dict[str, Any]]:
    best = sorted(probabilities.items(), key=lambda each: -each[1])
    return [{"score": score, "label": label} for label, score in best]


def _tokens(model: ServedModel, texts: list[str], special: bool) -> list[list[dict[str, Any]]]:
    tokenizer = model.predictor.tokenizer

    def mark(number: int) -> dict[str, Any]:
        text = tokenizer.tokens[number]
        return {"id": number, "text": text, "special": True, "start": None, "stop": None}

    encoded = tokenizer.encode_with_offsets(texts)
    num_tokens = sum(len(tokens.ids) for tokens in encoded)
    if num_tokens > MAX_TOKENIZED:
        raise RequestError(
            413,
            f"inputs has {num_tokens:,} tokens, one request has at most {MAX_TOKENIZED:,}; send "
            "several requests",
            param="inputs",
        )
    rows: list[list[dict[str, Any]]] = []
    for text, tokens in zip(texts, encoded, strict=True):
        offsets = np.asarray(tokens.offsets).tolist()
        row = [
            {
                "id": int(id),
                "text": text[start:stop],
                "special": False,
                "start": start,
                "stop": stop,
            }
            for id, (start, stop) in zip(tokens.ids, offsets, strict=True)
        ]
        rows.append([mark(tokenizer.cls_id), *row, mark(tokenizer.sep_id)] if special else row)
    return rows


HANDLERS: dict[str, Callable[..., Any]] = {
    "/embed": embed,
    "/predict": predict,
    "/rerank": rerank,
    "/similarity": similarity,
    "/tokenize": tokenize,
}
"""By path; their errors have TEI's form."""
