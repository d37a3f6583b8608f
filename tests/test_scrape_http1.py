"""The response reader gives the page or a reason, whatever the bytes and however they are cut."""

from __future__ import annotations

import gzip
from itertools import pairwise

import hostile
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.scrape.http1 import ResponseReader, gunzip
from kvcache_exporter.scrape.reasons import ScrapeError, acceptable

LIMIT = 4096
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
GOOD = [
    hostile.response(),
    hostile.chunked(b"a 1\n", b"b 2\n") + b"0\r\nX: y\r\n\r\n",
    hostile.response(gzip.compress(hostile.PAGE), headers="Content-Encoding: gzip\r\n"),
    b"HTTP/1.1 102 Processing\r\n\r\n" + hostile.response(),
]


def read(data: bytes, cuts: list[int] | None = None) -> bytes | None:
    """Feed `data` in pieces and close; None when the reader refused it."""
    reader = ResponseReader(LIMIT, acceptable)
    places = [0, *sorted(cuts or []), len(data)]
    try:
        for start, end in pairwise(places):
            if reader.feed(data[start:end]) and end == len(data):
                return reader.body()
        reader.end()
        return reader.body()
    except ScrapeError:
        return None


@given(st.sampled_from(GOOD), st.lists(st.integers(0, 300), max_size=8))
def test_it_does_not_matter_where_the_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    whole = read(data)
    assert whole
    assert read(data, [cut for cut in cuts if cut <= len(data)]) == whole


@given(st.sampled_from(GOOD), st.data())
def test_a_response_cut_anywhere_is_never_a_page(data: bytes, draw: st.DataObject) -> None:
    assert read(data[: draw.draw(st.integers(0, len(data) - 1))]) is None


@given(st.binary(max_size=400))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    read(data)


HEADERS = st.sampled_from(
    [
        b"Content-Length: 5",
        b"Content-Length: 12",
        b"Content-Length:",
        b"Transfer-Encoding: chunked",
        b"Content-Encoding: gzip",
        b"Connection: close",
        b"X: \xff",
        b": empty",
    ]
)
PIECES = st.sampled_from(
    [b"5\r\n", b"hello", b"\r\n", b"0\r\n", b"\r\n\r\n", b";", b"f" * 20, gzip.compress(b"a 1\n")]
)


@given(st.lists(HEADERS, max_size=4), st.lists(PIECES | st.binary(max_size=20), max_size=20))
@settings(max_examples=300)
def test_random_framing_never_raises_and_never_exceeds_the_cap(
    headers: list[bytes], pieces: list[bytes]
) -> None:
    data = HEAD + b"".join(line + b"\r\n" for line in headers) + b"\r\n" + b"".join(pieces)
    body = read(data)
    assert body is None or len(body) <= LIMIT


@given(st.binary(max_size=LIMIT))
def test_gunzip_undoes_gzip(body: bytes) -> None:
    assert gunzip(gzip.compress(body), LIMIT) == body


def test_gunzip_refuses_one_byte_more_than_allowed() -> None:
    assert len(gunzip(gzip.compress(bytes(LIMIT)), LIMIT)) == LIMIT
    with pytest.raises(ScrapeError, match="inflates to more than"):
        gunzip(gzip.compress(bytes(LIMIT + 1)), LIMIT)


def test_a_connection_is_kept_only_where_both_sides_agree() -> None:
    for data, keep in [
        (hostile.response(), True),
        (hostile.response(headers="Connection: Close\r\n"), False),
        (hostile.response().replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (HEAD + b"\r\na 1\n", False),
    ]:
        reader = ResponseReader(LIMIT, acceptable)
        reader.feed(data)
        assert reader.keep_alive is keep
