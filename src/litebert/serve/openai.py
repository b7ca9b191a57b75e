"""OpenAI's form: /v1/embeddings and error objects."""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from litebert.packing import num_special
from litebert.serve.models import Key, ServedModel
from litebert.serve.requests import RequestError, read_flag, read_list, read_text
from litebert.serve.verbs import Work, check_sizes, text_sizes

if TYPE_CHECKING:
    from litebert.serve.app import Call, Service

_FORMATS = ("float", "base64")


def error_object(error: RequestError) -> dict[str, Any]:
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }


async def embeddings(service: "Service", body: dict[str, Any], call: "Call") -> Any:
    """Vectors of length 1."""
    encoding = body.get("encoding_format")
    if encoding not in (None, *_FORMATS):
        raise RequestError(
            400, f"encoding_format is one of {', '.join(_FORMATS)}", param="encoding_format"
        )
    model = service.models.choose(body.get("model"), "embed")
    dimensions = read_dimensions(body, model)
    if "input" not in body:
        raise RequestError(
            400, "the field 'input' is missing; it is a text or a list of texts", param="input"
        )
    texts = body["input"]
    work = await call.read(
        embed_work, [texts] if isinstance(texts, str) else texts, "input", body, model
    )
    vectors = normalized(np.stack(await service.run(work, call))[:, :dimensions])
    tokens = sum(work.sizes)
    return {
        "object": "list",
        "model": model.name,
        "data": [
            {"object": "embedding", "index": number, "embedding": _encoded(vector, encoding)}
            for number, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def embed_work(texts: Any, name: str, body: dict[str, Any], model: ServedModel) -> Work:
    values = read_list({name: texts}, name)
    if not isinstance(values[0], str) and isinstance(values[0], int | list):
        raise RequestError(
            400,
            f"{name} holds token ids, which depend on a tokenizer; send texts",
            param=name,
        )
    return named_work(values, [f"{name}[{number}]" for number in range(len(values))], body, model)


def named_work(
    values: Sequence[Any], names: Sequence[str], body: dict[str, Any], model: ServedModel
) -> Work:
    """Texts to embed, and what the client calls each of them."""
    checked = [read_text(value, name) for value, name in zip(values, names, strict=True)]
    special = num_special(False)
    sizes = [size + special for size in text_sizes(model.predictor.tokenizer, checked)]
    truncate = read_flag(body, "truncate")
    limit = model.max_length("embed")
    sizes = check_sizes(sizes, names, limit, truncate=truncate)
    return Work(Key(model.name, "embed"), checked, sizes)


def read_dimensions(body: dict[str, Any], model: ServedModel) -> int:
    """How many numbers of each vector are asked for: a size that the model was trained for."""
    dimensions = body.get("dimensions", model.width)
    if dimensions is None:
        return model.width
    if type(dimensions) is not int or dimensions not in model.sizes:
        trained = ", ".join(map(str, model.sizes))
        raise RequestError(
            400,
            f"the model {model.name} was trained for vectors of {trained} numbers alone; leave "
            "dimensions out, or send one of these",
            param="dimensions",
        )
    return dimensions


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1."""
    scaled: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return scaled


def _encoded(vector: np.ndarray, encoding: str | None) -> Any:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
