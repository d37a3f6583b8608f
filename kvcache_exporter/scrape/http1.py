"""A strict reader of one HTTP/1.1 response, fed with bytes as they arrive; it does no I/O.

Strict because leniency hides truncation: a short body must never pass for a page with fewer
series. Whatever RFC 9112 calls ambiguous (two lengths, a sign in a length, a folded header) is
a `ScrapeError`, and every part that a peer can grow has a cap.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

from kvcache_exporter.scrape.head import Head, body_length, not_http, parse_head
from kvcache_exporter.scrape.reasons import ScrapeError

MAX_HEAD_BYTES = 16 * 1024
MAX_CHUNK_LINE_BYTES = 256
MAX_CHUNKS = 10_000
"""A page cut into more pieces costs more CPU to put together than to parse."""

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")


class ResponseReader:
    """Takes one response apart; each step eats what it can and returns the rest."""

    __slots__ = (
        "_accept",
        "_chunks",
        "_encoding",
        "_line",
        "_max_body_bytes",
        "_missing",
        "_parts",
        "_size",
        "_step",
        "complete",
        "keep_alive",
    )

    def __init__(self, max_body_bytes: int, accept: Callable[[Head], None]) -> None:
        """`accept` sees the head before any of the body and raises `ScrapeError` to refuse it."""
        self.complete = False
        self.keep_alive = False
        self._max_body_bytes = max_body_bytes
        self._accept = accept
        # Plain functions: a bound method here would be a reference cycle that keeps the page alive.
        self._step: Callable[[ResponseReader, bytes], bytes] = ResponseReader._read_head
        self._line = b""
        self._parts: list[bytes] = []
        self._size = 0
        self._missing = 0
        self._chunks = 0
        self._encoding = ""

    @property
    def unsized(self) -> bool:
        """The body ended where the connection did, so nothing proves that it is whole."""
        return self._step == ResponseReader._read_to_end

    @property
    def stage(self) -> str:
        """How far the response has come, in words for people."""
        if self._step == ResponseReader._read_head:
            return "waiting for the headers"
        return f"reading the body, {self._size:,} bytes so far"

    def feed(self, data: bytes) -> bool:
        """Take bytes from the peer; True once the response is complete."""
        while data:
            data = self._step(self, data)
        return self.complete

    def end(self) -> None:
        """Note that the peer closed its side: fine only for a body without a stated length."""
        if self._step == ResponseReader._read_to_end:
            self.complete = True
        elif not self.complete:
            raise ScrapeError(
                "truncated",
                f"the connection closed while {self.stage}: did the engine die, does a proxy cut"
                " answers, or does the port speak https?",
            )

    def body(self) -> bytes:
        """Return the decoded body of a complete response."""
        body = b"".join(self._parts)
        if self._encoding in ("", "identity"):
            return body
        return gunzip(body, self._max_body_bytes)

    def _read_head(self, data: bytes) -> bytes:
        data = self._line + data
        end = data.find(b"\r\n\r\n")
        if end > MAX_HEAD_BYTES or (end < 0 and len(data) > MAX_HEAD_BYTES):
            raise ScrapeError(
                "too_large", f"the headers exceed {MAX_HEAD_BYTES:,} bytes: what answers here?"
            )
        if end < 0:
            if not b"HTTP/1.".startswith(data[:7]):
                raise not_http(data)
            self._line = data
            return b""
        self._line = b""
        self._begin_body(parse_head(data[:end]))
        return data[end + 4 :]

    def _begin_body(self, head: Head) -> None:
        if 100 <= head.status < 200 and head.status != 101:
            return  # an interim answer; the deadline bounds how many can come
        self._accept(head)
        self._encoding = head.get(b"content-encoding").strip().lower()
        if self._encoding not in ("", "identity", "gzip", "x-gzip"):
            raise ScrapeError(
                "protocol",
                f"the body is encoded as {self._encoding[:20]!r} though nothing was asked for:"
                " switch that off in the proxy",
            )
        length, transfer = body_length(head), head.get(b"transfer-encoding").lower()
        close = "close" in head.get(b"connection").lower()
        self.keep_alive = head.version == 1 and not close
        if transfer:
            if transfer != "chunked" or length is not None or head.version == 0:
                raise ScrapeError("protocol", "the body's length is ambiguous: what answers here?")
            self._step = ResponseReader._read_chunk_size
        elif length is not None:
            self._begin_length(length)
        else:
            self.keep_alive = False
            self._step = ResponseReader._read_to_end

    def _begin_length(self, length: int) -> None:
        if length > self._max_body_bytes:
            raise self._too_large(length)
        self._missing = length
        self._step = ResponseReader._read_length if length else ResponseReader._read_nothing
        self.complete = length == 0

    def _read_length(self, data: bytes) -> bytes:
        rest = self._keep(data)
        if self._missing == 0:
            self.complete = True
            self._step = ResponseReader._read_nothing
        return rest

    def _read_to_end(self, data: bytes) -> bytes:
        self._missing = len(data)
        return self._keep(data)

    def _read_chunk_size(self, data: bytes) -> bytes:
        line, rest = self._read_line(data)
        if line is None:
            return b""
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise ScrapeError("protocol", "a chunk size is malformed: does a proxy garble answers?")
        self._missing = int(match[1], 16)
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            raise ScrapeError("too_large", f"the body comes in more than {MAX_CHUNKS:,} chunks")
        if self._size + self._missing > self._max_body_bytes:
            raise self._too_large(self._size + self._missing)
        self._step = ResponseReader._read_chunk if self._missing else ResponseReader._read_trailer
        return rest

    def _read_chunk(self, data: bytes) -> bytes:
        rest = self._keep(data)
        if self._missing == 0:
            self._step = ResponseReader._read_chunk_end
        return rest

    def _read_chunk_end(self, data: bytes) -> bytes:
        line, rest = self._read_line(data)
        if line:
            raise ScrapeError("protocol", "a chunk is longer than it says: does a proxy garble it?")
        if line is not None:
            self._step = ResponseReader._read_chunk_size
        return rest

    def _read_trailer(self, data: bytes) -> bytes:
        line, rest = self._read_line(data)
        if line == b"":
            self.complete = True
            self._step = ResponseReader._read_nothing
        elif line is not None:
            self._chunks += 1
            if self._chunks > MAX_CHUNKS:
                raise ScrapeError("too_large", "the trailer never ends: what answers here?")
        return rest

    def _read_nothing(self, data: bytes) -> bytes:
        raise ScrapeError(
            "protocol", "more bytes came than were announced: does a proxy garble it?"
        )

    def _read_line(self, data: bytes) -> tuple[bytes | None, bytes]:
        data = self._line + data
        line, found, rest = data.partition(b"\r\n")
        if len(line) > MAX_CHUNK_LINE_BYTES:
            raise ScrapeError("too_large", "a chunk header is far too long: what answers here?")
        self._line = b"" if found else data
        return (line if found else None), rest

    def _keep(self, data: bytes) -> bytes:
        part = data[: self._missing]
        self._parts.append(part)
        self._size += len(part)
        self._missing -= len(part)
        if self._size > self._max_body_bytes:
            raise self._too_large(self._size)
        return data[len(part) :]

    def _too_large(self, size: int) -> ScrapeError:
        return ScrapeError(
            "too_large",
            f"the page has at least {size:,} bytes, more than the {self._max_body_bytes:,} allowed:"
            " is this a vLLM /metrics page?",
        )


def gunzip(body: bytes, max_bytes: int) -> bytes:
    """Inflate one gzip member; `zlib.decompress` and every HTTP library let a cut one pass."""
    inflate = zlib.decompressobj(31)
    try:
        page = inflate.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise ScrapeError(
            "gzip", "the gzip data is damaged: switch compression off there"
        ) from error
    if len(page) > max_bytes:
        raise ScrapeError("too_large", f"the page inflates to more than {max_bytes:,} bytes")
    if not inflate.eof or inflate.unused_data:
        raise ScrapeError("gzip", "the gzip data is cut: switch compression off in the proxy")
    return page
