"""Whatever a target does, its scrape says why there is no page, and no other target notices."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import hostile
import pytest
from bad_target import MAX_BODY_BYTES, problem, scrape
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.model import Scrape, Target
from kvcache_exporter.scrape import Client


@dataclass(frozen=True)
class Fault:
    """What a target does, and what its scrape must say."""

    name: str
    behaviour: hostile.Behaviour
    code: str
    words: str


def head(*lines: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", "Content-Type: text/plain", *lines, "", ""]).encode()


def status(code: int, headers: str = "") -> hostile.Behaviour:
    return hostile.answer(hostile.response(b"{}", status=f"{code} X", headers=headers))


def answer(body: bytes = hostile.PAGE, **kwargs: str) -> hostile.Behaviour:
    return hostile.answer(hostile.response(body, **kwargs))


def gzipped(body: bytes) -> hostile.Behaviour:
    return hostile.answer(hostile.response(body, headers="Content-Encoding: gzip\r\n"))


BOMB = gzip.compress(bytes(50_000_000), 9)
ZIPPED = gzip.compress(hostile.PAGE * 1000)
LINES = b"a_metric 1\n" * 6000
FAULTS = [
    Fault("never answers", hostile.hang, "timeout", "waiting for the headers"),
    Fault("never reads", hostile.silent, "timeout", "is the engine hung"),
    Fault("drips its head", hostile.drip(head() * 50), "timeout", "waiting for the headers"),
    Fault(
        "drips its body",
        hostile.drip(head("Content-Length: 100000") + b"x" * 5000, 0.002),
        "timeout",
        "bytes so far",
    ),
    Fault(
        "hangs in the body",
        hostile.answer(head("Content-Length: 500") + b"x 1\n", keep_open=True),
        "timeout",
        "4 bytes so far",
    ),
    Fault(
        "sends interim answers for ever",
        hostile.endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 500),
        "timeout",
        "waiting for the headers",
    ),
    Fault(
        "sends a body without end",
        hostile.endless(head(), LINES),
        "too_large",
        "more than the 262,144 allowed",
    ),
    Fault(
        "sends chunks without end",
        hostile.endless(hostile.chunked(), b"10000\r\n" + b"x" * 0x10000 + b"\r\n"),
        "too_large",
        "more than the 262,144 allowed",
    ),
    Fault(
        "sends tiny chunks without end",
        hostile.endless(hostile.chunked(), b"1\r\nx\r\n" * 5000),
        "too_large",
        "10,000 chunks",
    ),
    Fault(
        "sends a trailer without end",
        hostile.endless(hostile.chunked() + b"0\r\n", b"A: b\r\n" * 5000),
        "too_large",
        "trailer",
    ),
    Fault(
        "announces 500 MB",
        answer(length="500000000"),
        "too_large",
        "500,000,000 bytes",
    ),
    Fault("sends a gzip bomb", gzipped(BOMB), "too_large", "inflates to more than 262,144"),
    Fault("cuts its gzip", gzipped(ZIPPED[:-20]), "gzip", "is cut"),
    Fault("sends two gzip members", gzipped(ZIPPED + ZIPPED), "gzip", "is cut"),
    Fault("damages its gzip", gzipped(b"\x1f\x8b" + ZIPPED[12:]), "gzip", "damaged"),
    Fault(
        "encodes unasked",
        answer(headers="Content-Encoding: br\r\n"),
        "protocol",
        "'br' though nothing was asked for",
    ),
    Fault("a negative length", answer(length="-5"), "protocol", "Content-Length"),
    Fault("a signed length", answer(length="+21"), "protocol", "Content-Length"),
    Fault("a hexadecimal length", answer(length="0x15"), "protocol", "Content-Length"),
    Fault("a length list", answer(length="21, 21"), "protocol", "Content-Length"),
    Fault("a length of 30 digits", answer(length="9" * 30), "protocol", "Content-Length"),
    Fault(
        "two lengths that differ",
        answer(headers="Content-Length: 20\r\n"),
        "protocol",
        "Content-Length",
    ),
    Fault(
        "length and chunks at once",
        answer(headers="Transfer-Encoding: chunked\r\n"),
        "protocol",
        "ambiguous",
    ),
    Fault(
        "an unknown transfer coding",
        hostile.answer(head("Transfer-Encoding: gzip, chunked")),
        "protocol",
        "ambiguous",
    ),
    Fault("more bytes than announced", answer(length="10"), "protocol", "more bytes came"),
    Fault(
        "a malformed chunk size",
        hostile.answer(hostile.chunked() + b"-5\r\nhello\r\n"),
        "protocol",
        "chunk size is malformed",
    ),
    Fault(
        "a chunk longer than it says",
        hostile.answer(hostile.chunked() + b"2\r\nhello\r\n"),
        "protocol",
        "longer than it says",
    ),
    Fault(
        "a chunk extension of 4 MB",
        hostile.endless(hostile.chunked() + b"5;", b"x" * 65536),
        "too_large",
        "chunk header",
    ),
    Fault(
        "5000 headers",
        hostile.answer(head(*(f"X-{i}: {i}" for i in range(5000)))),
        "too_large",
        "headers exceed 16,384 bytes",
    ),
    Fault(
        "a header of 4 MB",
        hostile.endless(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536),
        "too_large",
        "headers exceed",
    ),
    Fault("a folded header", hostile.answer(head("X: a", " b")), "protocol", "header line"),
    Fault("a bare line feed", hostile.answer(b"HTTP/1.1 200 OK\n\n"), "truncated", "closed"),
    Fault("speaks SSH", hostile.answer(b"SSH-2.0-OpenSSH_9.2\r\n"), "protocol", "not HTTP/1.1"),
    Fault("speaks TLS alerts", hostile.answer(b"\x15\x03\x01\x00\x02\x02"), "tls", "https://"),
    Fault("cuts the body", answer(length="500"), "truncated", "21 bytes so far"),
    Fault("cuts the head", hostile.answer(b"HTTP/1.1 200 O"), "truncated", "the headers"),
    Fault(
        "cuts between chunks",
        hostile.answer(hostile.chunked(hostile.PAGE)),
        "truncated",
        "does a proxy cut answers",
    ),
    Fault(
        "cuts inside a chunk",
        hostile.answer(hostile.chunked() + b"ff\r\nx 1"),
        "truncated",
        "does a proxy cut answers",
    ),
    Fault(
        "cuts a body without length",
        hostile.answer(head("Connection: close") + b"vllm:a 12"),
        "truncated",
        "does not end in a line break",
    ),
    Fault("answers HTML", answer(b"<html>", content_type="text/html"), "not_metrics", "text/html"),
    Fault("answers JSON", answer(content_type="application/json"), "not_metrics", "/metrics"),
    Fault("answers an image", answer(content_type="image/png"), "not_metrics", "image/png"),
    Fault(
        "answers UTF-16",
        answer(content_type="text/plain; charset=utf-16"),
        "not_metrics",
        "utf-16",
    ),
    Fault("answers nothing", answer(b""), "empty", "just started"),
    Fault("answers blanks", answer(b"\n\n"), "empty", "just started"),
    Fault(
        "redirects elsewhere",
        status(302, "Location: https://user:secret@evil.test/x?token=secret\r\n"),
        "redirect",
        "'https://evil.test/x'",
    ),
    Fault("redirects nowhere", status(307), "redirect", "nowhere"),
    Fault("asks for credentials", status(401), "http_status", "401: it wants credentials"),
    Fault("refuses credentials", status(403), "http_status", "credentials"),
    Fault("has no such path", status(404), "http_status", "vLLM serves /metrics"),
    Fault("fails", status(500), "http_status", "look into its log"),
    Fault("is starting or asleep", status(503), "http_status", "starting, sleeping"),
    Fault("makes up a status", status(299), "http_status", "299"),
    Fault("hangs up", hostile.hang_up, "connection_reset", "did the engine die"),
    Fault("resets", hostile.reset, "connection_reset", "did the engine die"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_target_that(fault: Fault) -> None:
    with hostile.serve(fault.behaviour) as server:
        found = problem(server)
    assert (found.code, fault.words in found.text) == (fault.code, True), found
    assert "secret" not in found.text


def test_a_port_where_nothing_listens_is_named_with_the_next_step() -> None:
    with hostile.serve(hostile.hang) as server:
        pass
    found = problem(server)
    assert found.code == "connection_refused"
    assert found.text == (
        f"nothing listens on 127.0.0.1:{server.port}: is vLLM running, is the port right?"
    )


def test_a_slow_answer_within_the_timeout_succeeds() -> None:
    with hostile.serve(hostile.drip(hostile.response(b"a 1\n"), 0.001)) as server:
        assert scrape(server).body == b"a 1\n"


@pytest.mark.parametrize(
    "data",
    [
        hostile.response(),
        hostile.response(headers="Content-Length: 21\r\n"),
        hostile.response(content_type=""),
        hostile.response(content_type="application/openmetrics-text; version=1.0.0"),
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + hostile.response(),
        b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n" + hostile.PAGE,
        head("Connection: close") + hostile.PAGE,
        hostile.chunked(hostile.PAGE[:5], hostile.PAGE[5:]) + b"0\r\n\r\n",
        hostile.chunked() + b"15;name=value\r\n" + hostile.PAGE + b"\r\n0\r\nTrailer: x\r\n\r\n",
        hostile.response(gzip.compress(hostile.PAGE), headers="Content-Encoding: gzip\r\n"),
        hostile.response(headers="Content-Encoding: identity\r\n"),
    ],
)
def test_every_correct_way_to_frame_a_page_is_understood(data: bytes) -> None:
    with hostile.serve(hostile.answer(data)) as server:
        assert scrape(server).body == hostile.PAGE


def test_bytes_that_are_not_utf8_reach_the_parser_unchanged() -> None:
    body = b'a{b="\xff"} 1\n'
    with hostile.serve(answer(body)) as server:
        assert scrape(server).body == body


def test_a_gzip_bomb_costs_little_memory() -> None:
    tracemalloc.start()
    with hostile.serve(gzipped(BOMB)) as server:
        problem(server)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


def test_an_endless_body_is_dropped_instead_of_drained() -> None:
    with hostile.serve(hostile.endless(head(), LINES)) as server:
        assert problem(server).code == "too_large"
        # The server's sendall fails only when our side is closed; it would go on otherwise.
        server._threads[0].join(hostile.LIMIT_SECONDS / 2)
        assert not server._threads[0].is_alive()


def test_no_fault_leaves_a_file_open() -> None:
    async def fetch(url: str) -> None:
        client = Client(timeout_seconds=0.1, max_body_bytes=MAX_BODY_BYTES)
        await client.fetch(Target("bad", url))
        await client.close()

    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    for fault in FAULTS:
        with hostile.serve(fault.behaviour) as server:
            asyncio.run(fetch(server.url))
    assert opened() <= before


@given(st.lists(st.binary(max_size=200) | st.sampled_from([head(), b"\r\n\r\n"]), max_size=5))
@settings(max_examples=60, deadline=None)
def test_random_bytes_over_a_socket_are_a_page_or_a_problem(pieces: list[bytes]) -> None:
    async def fetch(url: str) -> Scrape:
        client = Client(timeout_seconds=2.0)
        try:
            return await client.fetch(Target("bad", url))
        finally:
            await client.close()

    with hostile.serve(hostile.answer(b"".join(pieces))) as server:
        result = asyncio.run(fetch(server.url))
    assert (result.body is None) is (result.problem is not None)
    assert result.problem is None or result.problem.code not in ("failed", "timeout")
