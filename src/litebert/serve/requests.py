"""Bodies of requests: bytes in; checked fields, or one clear sentence with a status, out."""

import json
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from litebert.checks import shorten

MAX_BODY_BYTES = 2 * 2**20
MAX_ITEMS = 2048
"""Texts in one request, as at OpenAI."""
MAX_TOP = 100
"""Guesses for a mask."""
MAX_GUESSES = MAX_ITEMS * MAX_TOP
"""In one request."""
MAX_ITEM_TOKENS = 32_768
"""That one item makes the model read, in all rows of its options or windows. Two cores compute
them in seconds, within a deadline, by an albert-base in int8."""
MAX_TOKENIZED = 200_000
"""Tokens of one request to /tokenize."""


class RequestError(Exception):
    """A request that is refused: the status, a sentence, and the field that is to blame."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after = retry_after
        """Seconds after which another try may succeed."""

    @property
    def type(self) -> str:
        """OpenAI's kind of error."""
        if self.status == 401:
            return "authentication_error"
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    try:
        value = json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise RequestError(
            400, f"the body is not UTF-8 (byte {error.start + 1}); send JSON in UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError | _ConstantError) else ""
        detail = f" ({reason})" if reason else ""
        raise RequestError(
            400, f'the body is not valid JSON{detail}; expected an object, such as {{"texts": […]}}'
        ) from None
    if not isinstance(value, dict):
        raise RequestError(400, f"the body is a JSON object; got {_kind(value)}")
    return value


def check_fields(body: Mapping[str, Any], known: Collection[str], *, where: str = "") -> None:
    """Refuse a field that would have no effect."""
    for name in body:
        if name not in known:
            raise RequestError(
                400,
                f"there is no field {shorten(name)}{where}; known: {', '.join(known)}",
                param=name if name.isprintable() else None,
            )


def read_text(value: Any, where: str, *, empty: bool = False) -> str:
    """A text that is Unicode and, unless `empty`, more than white space."""
    if not isinstance(value, str):
        raise RequestError(400, f"{where} is a text; got {_kind(value)}", param=where)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            400,
            f"{where} holds half of a surrogate pair (character {error.start + 1}), which is no "
            "character; send whole characters",
            param=where,
        ) from None
    if not empty and not value.strip():
        raise RequestError(422, f"{where} is empty; leave it out, or write a text", param=where)
    return value


def read_list(body: Mapping[str, Any], name: str, what: str = "texts") -> list[Any]:
    """A list that is neither empty nor too long."""
    if name not in body:
        raise RequestError(
            400, f"the field {name!r} is missing; it is a list of {what}", param=name
        )
    value = body[name]
    if not isinstance(value, list):
        raise RequestError(400, f"{name} is a list of {what}; got {_kind(value)}", param=name)
    if not value:
        raise RequestError(400, f"{name} is empty; expected a list of {what}", param=name)
    if len(value) > MAX_ITEMS:
        raise RequestError(
            413,
            f"{name} has {len(value):,} entries, one request has at most {MAX_ITEMS:,}; send "
            "several requests",
            param=name,
        )
    return value


def read_object_field(value: Any, where: str, known: Collection[str]) -> dict[str, Any]:
    """An object with exactly the `known` fields."""
    if not isinstance(value, dict):
        raise RequestError(
            400, f"{where} is an object with {', '.join(known)}; got {_kind(value)}", param=where
        )
    check_fields(value, known, where=f" in {where}")
    for name in known:
        if name not in value:
            raise RequestError(400, f"{where} has no {name!r}", param=f"{where}.{name}")
    return value


def read_flag(body: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RequestError(400, f"{name} is true or false; got {_kind(value)}", param=name)
    return value


def read_number(body: Mapping[str, Any], name: str, default: int, most: int) -> int:
    """A whole number from 1 to `most`."""
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not 1 <= value <= most:
        got = shorten(value) if isinstance(value, int | float) else _kind(value)
        raise RequestError(400, f"{name} is a whole number from 1 to {most}; got {got}", param=name)
    return value


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


class _ConstantError(ValueError):
    pass


def _refuse_constant(name: str) -> NoReturn:
    raise _ConstantError(f"{name} is no number of JSON")
