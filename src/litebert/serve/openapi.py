"""The OpenAPI document of the service."""

from typing import Any

from litebert import __version__
from litebert.serve.requests import MAX_ITEMS, MAX_TOP

_ERRORS = {
    "400": "A malformed request.",
    "401": "The key is missing or wrong.",
    "403": "A request from a page of another origin.",
    "404": "No such model.",
    "408": "The body did not arrive in time.",
    "413": "The body, its list or one of its items is too large.",
    "422": "A text that the model cannot read.",
    "429": "Too much waits; Retry-After says when to try again.",
    "500": "The service failed.",
    "503": "The models are being loaded, or the service is stopping.",
    "504": "The deadline passed.",
}
_STRING: dict[str, Any] = {"type": "string"}
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_NUMBER: dict[str, Any] = {"type": "number"}
_INT: dict[str, Any] = {"type": "integer"}


def _object(
    properties: dict[str, Any], *, required: tuple[str, ...] | None = None, closed: bool = False
) -> dict[str, Any]:
    """By default all properties are required."""
    needed = list(properties if required is None else required)
    return {
        "type": "object",
        "properties": properties,
        **({"required": needed} if needed else {}),
        **({"additionalProperties": False} if closed else {}),
    }


def _list(items: dict[str, Any], **limits: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **limits}


def _inputs(items: dict[str, Any]) -> dict[str, Any]:
    return _list(items, minItems=1, maxItems=MAX_ITEMS)


_TEXTS = _inputs(_TEXT)
_PAIRS = _inputs(_list(_TEXT, minItems=2, maxItems=2))
_LABELED = {
    "probabilities": {"type": "object", "additionalProperties": _NUMBER},
    "label": _STRING,
    "labels": _list(_STRING),
}
_GUESS = _object({"token": _STRING, "probability": _NUMBER})
_OPTIONAL_TEXT = {"type": ["string", "null"]}
_OPTIONAL_NUMBER = {"type": ["number", "null"]}
_SPAN = {"text": _OPTIONAL_TEXT} | dict.fromkeys(("start", "end", "score"), _OPTIONAL_NUMBER)
_DIMENSIONS: dict[str, Any] = {
    "type": "integer",
    "description": "A size of vectors that the model was trained for; its width by default.",
}
_LEAVES = {
    "type": "object",
    "additionalProperties": _object({"threshold": _NUMBER, "depth": _INT}),
}
_EXITS = _object({"answers": _list({"type": "object"}), "leaves": _LEAVES})
_CHOICE = _object(
    {"context": _STRING, "question": _STRING, "options": _list(_TEXT, minItems=2)}, closed=True
)
_QUESTION = _object({"question": _TEXT, "context": _TEXT}, closed=True)

# verb → what it does, fields of the body, those that are required, a result
_VERBS: dict[str, tuple[str, dict[str, Any], tuple[str, ...], dict[str, Any]]] = {
    "fill": (
        "Predict the tokens behind [MASK].",
        {
            "texts": _TEXTS,
            "top": {"type": "integer", "minimum": 1, "maximum": MAX_TOP, "default": 5},
        },
        ("texts",),
        _object({"text": _STRING, "masks": _list(_list(_GUESS))}),
    ),
    "classify": (
        "Label texts.",
        {"texts": _TEXTS},
        ("texts",),
        _object({"text": _STRING, **_LABELED}, required=("text", "probabilities")),
    ),
    "pair": (
        "Label pairs of texts.",
        {"pairs": _PAIRS},
        ("pairs",),
        _object(
            {"first": _STRING, "second": _STRING, **_LABELED},
            required=("first", "second", "probabilities"),
        ),
    ),
    "regress": (
        "Score texts, or pairs of texts, with a number: one of both lists.",
        {"texts": _TEXTS, "pairs": _PAIRS},
        (),
        _object({"first": _STRING, "second": _OPTIONAL_TEXT, "value": _NUMBER}),
    ),
    "choose": (
        "Choose among options.",
        {"items": _inputs(_CHOICE)},
        ("items",),
        _object(
            {
                "question": _STRING,
                "options": _list(_STRING),
                "index": _INT,
                "probabilities": _list(_NUMBER),
                "option": _STRING,
            }
        ),
    ),
    "answer": (
        "Find answers to questions in contexts, long ones in overlapping windows.",
        {"items": _inputs(_QUESTION)},
        ("items",),
        _object(
            {"question": _STRING, **_SPAN, "null_score": _NUMBER, "spans": _list(_object(_SPAN))}
        ),
    ),
    "tag": (
        "Tag the words of texts, which are split at white space or sent as lists of words.",
        {"texts": _inputs({"anyOf": [_TEXT, _list(_TEXT, minItems=1)]})},
        ("texts",),
        _object({"words": _list(_STRING), "tags": _list(_STRING), "probabilities": _list(_NUMBER)}),
    ),
    "layers": (
        "What each layer does to texts, or pairs of texts: how far it moves their states, and with "
        "exits the answer after each layer and where a text would leave.",
        {"texts": _TEXTS, "pairs": _PAIRS},
        (),
        _object(
            {
                "first": _STRING,
                "second": _OPTIONAL_TEXT,
                "tokens": _INT,
                "l2": _list(_NUMBER),
                "cosine": _list(_NUMBER),
                "exits": {"anyOf": [_EXITS, {"type": "null"}]},
            }
        ),
    ),
}

_TRUNCATE: dict[str, Any] = {"truncate": {"type": "boolean", "default": False}}
_TEXT_OR_TEXTS = {"anyOf": [_TEXT, _TEXTS]}
_INPUTS: dict[str, Any] = {"inputs": _TEXT_OR_TEXTS}
_SCORES = _list(_object({"score": _NUMBER, "label": _STRING}))
_TEI: dict[str, tuple[str, dict[str, Any], tuple[str, ...], dict[str, Any]]] = {
    "/embed": (
        "Vectors of texts, as text-embeddings-inference gives them.",
        _INPUTS
        | _TRUNCATE
        | {"normalize": {"type": "boolean", "default": True}, "dimensions": _DIMENSIONS},
        ("inputs",),
        _list(_list(_NUMBER)),
    ),
    "/predict": (
        "Labels with probabilities, for a text, a pair, or a list of lists of one or two texts.",
        {"inputs": {"anyOf": [_TEXT, _list({"anyOf": [_TEXT, _list(_TEXT)]})]}} | _TRUNCATE,
        ("inputs",),
        {"anyOf": [_SCORES, _list(_SCORES)]},
    ),
    "/rerank": (
        "Texts by how well they fit a query, the best first. Headers say what scored.",
        {"query": _TEXT, "texts": _TEXTS, "return_text": {"type": "boolean"}} | _TRUNCATE,
        ("query", "texts"),
        _list(
            _object({"index": _INT, "score": _NUMBER, "text": _STRING}, required=("index", "score"))
        ),
    ),
    "/v1/rerank": (
        "The same in Cohere's form; meta says what scored.",
        {
            "query": _TEXT,
            "documents": _inputs({"anyOf": [_TEXT, _object({"text": _TEXT})]}),
            "top_n": {"type": "integer", "minimum": 1, "maximum": MAX_ITEMS},
            "return_documents": {"type": "boolean"},
        }
        | _TRUNCATE,
        ("query", "documents"),
        _object({"id": _STRING, "results": _list({"type": "object"}), "meta": {"type": "object"}}),
    ),
    "/similarity": (
        "The cosine of a sentence with each of several.",
        {"inputs": _object({"source_sentence": _TEXT, "sentences": _TEXTS}, closed=True)},
        ("inputs",),
        _list(_NUMBER),
    ),
    "/tokenize": (
        "The tokens of texts, with their characters.",
        _INPUTS | {"add_special_tokens": {"type": "boolean", "default": True}},
        ("inputs",),
        _list(_list({"type": "object"})),
    ),
}


def document() -> dict[str, Any]:
    paths: dict[str, Any] = {
        "/health": _get("200 while the process is alive."),
        "/ready": _get("200 once the models are loaded, 503 before and while the service stops."),
        "/info": _get("Version, models and limits."),
        "/openapi.json": _get("This document."),
        "/v1/models": _get("The models, in OpenAI's form, with what each can do."),
        "/v1/models/{model}": _get("One of them."),
    }
    named = {"name": "model", "in": "path", "required": True, "schema": _STRING}
    paths["/v1/models/{model}"]["get"]["parameters"] = [named]
    model = _STRING | {"description": "By default the first that can do it."}
    truncate = _TRUNCATE["truncate"] | {
        "description": "Cut what is longer than the model reads instead of refusing it. Of what is "
        "read in windows, only the question is cut."
    }
    for verb, (summary, fields, required, result) in _VERBS.items():
        common = {"model": model, **fields, "truncate": truncate}
        response = _object({"model": _STRING, "results": _list(result)})
        body = _object(common, required=required, closed=True)
        paths[f"/v1/{verb}"] = _post(summary, body, response)
    body = _object(
        {
            "input": _TEXT_OR_TEXTS,
            "model": _STRING,
            "encoding_format": {"enum": ["float", "base64"]},
            "dimensions": _DIMENSIONS,
            **_TRUNCATE,
        },
        required=("input",),
    )
    embedding = {"anyOf": [_list(_NUMBER), _STRING]}
    response = _object(
        {
            "object": _STRING,
            "model": _STRING,
            "data": _list(_object({"object": _STRING, "index": _INT, "embedding": embedding})),
            "usage": _object({"prompt_tokens": _INT, "total_tokens": _INT}),
        }
    )
    for path in ("/v1/embeddings", "/embeddings"):
        paths[path] = _post("Vectors of texts, in OpenAI's form.", body, response)
    for path, (summary, fields, needed, result) in _TEI.items():
        paths[path] = _post(summary, _object({"model": _STRING} | fields, required=needed), result)
        for status, answer in paths[path]["post"]["responses"].items():
            if status != "200" and path != "/v1/rerank":
                answer["content"] = _content({"$ref": "#/components/schemas/TeiError"})
    paths["/metrics"] = _get("Numbers in Prometheus' text format.")
    paths["/metrics"]["get"]["responses"]["200"]["content"] = {"text/plain": {}}
    error = _object(
        {"message": _STRING, "type": _STRING, "param": _OPTIONAL_TEXT, "code": _OPTIONAL_TEXT}
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "litebert", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {
                "Error": _object({"error": error}),
                "TeiError": _object({"error": _STRING, "error_type": _STRING}),
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _errors() -> dict[str, Any]:
    schema = _content({"$ref": "#/components/schemas/Error"})
    return {status: {"description": text, "content": schema} for status, text in _ERRORS.items()}


def _get(summary: str) -> dict[str, Any]:
    ok = {"description": "JSON.", "content": _content({"type": "object"})}
    return {"get": {"summary": summary, "responses": {"200": ok, **_errors()}}}


def _post(summary: str, body: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    ok = {"description": "The results.", "content": _content(response)}
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": _content(body)},
            "responses": {"200": ok, **_errors()},
        }
    }
