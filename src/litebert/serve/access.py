"""Who may ask: the Host header, the origin, the key. Headers of a request in; nothing, or a
RequestError, out. And the headers that every response has."""

import hmac
import ipaddress
import re
import secrets
from collections.abc import Collection
from urllib.parse import urlsplit

from litebert.errors import ConfigError, DataError
from litebert.files import read_bytes
from litebert.serve.requests import RequestError

_MIN_KEY = 16
"""Characters of a key, at least."""
_OPEN = frozenset({"/health", "/ready"})
"""Paths that need no key: probes have none."""
_NAME = re.compile(r"\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_API_POLICY = "default-src 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def read_key(path: str) -> str:
    """The key in a file: its only line."""
    try:
        key = read_bytes(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the key file {path} cannot be read: {error}") from error
    if len(key) < _MIN_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            f"the key in {path} is one line of at least {_MIN_KEY} ASCII characters without "
            "spaces; make one with: openssl rand -hex 32"
        )
    return key


class Access:
    def __init__(
        self,
        *,
        host: str,
        key: str | None = None,
        insecure: bool = False,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        """`host` is the address listened at: one that other machines reach needs a key, or
        `insecure`."""
        address = _address(host)
        is_local = host == "localhost" or (address is not None and address.is_loopback)
        if not is_local and key is None and not insecure:
            raise ConfigError(
                f"other machines can reach {host}; give a key with --key-file, or allow everybody "
                "with --insecure"
            )
        self._key = None if key is None else key.encode()
        self._names = {"localhost", host.lower(), *(name.lower() for name in allowed_hosts)}
        # A name that leads to a loopback address is a page's trick (DNS rebinding); a public
        # address may have any name.
        self._any_name = not is_local and not allowed_hosts

    def check(self, path: str, headers: dict[str, str], *, num_hosts: int, is_page: bool) -> None:
        host = headers.get("host", "")
        name = _host_name(host)
        if num_hosts != 1 or name is None:
            raise RequestError(400, "the Host header is missing or malformed", code="bad_host")
        if not (self._any_name or name in self._names or _address(name)):
            raise RequestError(
                400,
                "the Host header names another machine; start the service with --allow-host to "
                "serve under more names",
                code="bad_host",
            )
        origin = headers.get("origin")
        foreign = headers.get("sec-fetch-site") == "cross-site" and not is_page
        if foreign or (origin is not None and _netloc(origin) != host.lower()):
            raise RequestError(
                403, "requests from pages of other origins are refused", code="cross_origin"
            )
        if self._key is None or path in _OPEN or is_page:
            return
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(sent.strip().encode(), self._key):
            raise RequestError(
                401,
                "the key is missing or wrong; send it as: Authorization: Bearer KEY",
                code="invalid_api_key",
            )


def request_id(headers: dict[str, str]) -> str:
    """The client's X-Request-Id where it is a plain name, else a new one."""
    sent = headers.get("x-request-id", "")
    return sent if _REQUEST_ID.fullmatch(sent) else secrets.token_hex(8)


def response_headers(identifier: str, *, is_page: bool) -> list[tuple[bytes, bytes]]:
    """What every response has. No CORS header: pages of other origins read nothing."""
    headers = {
        "x-request-id": identifier,
        "x-content-type-options": "nosniff",
        "content-security-policy": PAGE_POLICY if is_page else _API_POLICY,
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        **({} if is_page else {"cache-control": "no-store"}),
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _host_name(host: str) -> str | None:
    """The name of a Host header, without its port."""
    match = _NAME.match(host)
    if match is None:
        return None
    port = host[match.end() :]
    is_port = not port or (port[0] == ":" and port[1:].isdecimal() and len(port) < 7)
    return match.group().strip("[]").lower() if is_port else None


def _netloc(origin: str) -> str:
    """The host and port of an origin; empty for what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:  # "http://["
        return ""


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
