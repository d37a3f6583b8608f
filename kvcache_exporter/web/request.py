"""A request as it comes off the wire, and a response as it goes back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

MAX_HEAD_BYTES = 16 * 1024
TEXT = "text/plain; charset=utf-8"

_REQUEST_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")


@dataclass(frozen=True, slots=True)
class Request:
    """A request without a body; header names are lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class Response:
    """What a route answers; `headers` come on top of the ones every response carries."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[Request], Response]


class BadRequestError(ValueError):
    """A head that no well-behaved client sends; the text says why."""


def parse_request(head: bytes) -> Request:
    """Parse everything before the empty line."""
    first, *lines = head.decode("latin-1").split("\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise BadRequestError("malformed request line")
    headers: dict[str, str] = {}
    for raw in lines:
        match = _HEADER.fullmatch(raw)
        if match is None:
            raise BadRequestError("malformed header")
        headers[match[1].lower()] = match[2].rstrip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError("a request with a body is not understood")
    path, _, query = line[2].partition("?")
    keep_alive = line[3] == "1" and "close" not in headers.get("connection", "").lower()
    return Request(line[1], path, query, headers, keep_alive)


def text(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Make a response of one line of text."""
    return Response(status, f"{message}\n".encode(), headers=headers or {})


def head_of(response: Response, extra: Mapping[str, str], *, keep_alive: bool) -> bytes:
    """Render the status line and headers of a response; `extra` ones replace our own."""
    phrase = HTTPStatus(response.status).phrase
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "Connection": "keep-alive" if keep_alive else "close",
        **response.headers,
        **extra,
    }
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {response.status} {phrase}", *lines, "", ""]).encode("latin-1")
