"""The head of an HTTP/1.1 response: status line and headers, read strictly."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvcache_exporter.scrape.reasons import ScrapeError

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_LENGTH = re.compile(rb"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of a response; header names are lower case, repeated ones are kept."""

    version: int
    """Minor version: 0 for HTTP/1.0, 1 for HTTP/1.1."""
    status: int
    headers: dict[bytes, list[bytes]]

    def get(self, name: bytes) -> str:
        """Return all values of a header joined with a comma; "" when it is absent."""
        return b", ".join(self.headers.get(name, ())).decode("latin-1")


def parse_head(block: bytes) -> Head:
    """Parse everything before the empty line."""
    first, *lines = block.split(b"\r\n")
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        raise not_http(first)
    headers: dict[bytes, list[bytes]] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise ScrapeError("protocol", "a header line is malformed: is this an HTTP server?")
        headers.setdefault(match[1].lower(), []).append(match[2].rstrip(b" \t"))
    return Head(int(status[1]), int(status[2]), headers)


def body_length(head: Head) -> int | None:
    """Return the bytes the Content-Length header promises, or None without that header."""
    lengths = set(head.headers.get(b"content-length", ()))
    if not lengths:
        return None
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise ScrapeError(
            "protocol", "the Content-Length is not one plain number: what answers here?"
        )
    return int(length)


def not_http(data: bytes) -> ScrapeError:
    """Say what answers where the first bytes are not those of HTTP/1.x."""
    if data[:1] in (b"\x15", b"\x16"):
        return ScrapeError("tls", "the port speaks TLS: write https:// in the URL")
    return ScrapeError("protocol", "the answer is not HTTP/1.1: is the port right?")
