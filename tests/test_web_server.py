"""The server answers what the last cycle rendered, to whom it should and in the form asked for."""

from __future__ import annotations

import gzip
import http.client
import logging
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.web import Latest, Page, Server, pages_of
from kvcache_exporter.web.gate import OpenGate
from kvcache_exporter.web.listen import is_exposed, split
from kvcache_exporter.web.pages import Route, Routes, accepts_gzip
from kvcache_exporter.web.request import BadRequestError, Request, Response, parse_request

TLS = Path(__file__).parent / "data" / "tls"
METRICS = b"# TYPE up gauge\nup 1\n" * 100
START = b"<!doctype html><title>kvcache-exporter</title>"


def latest() -> Latest:
    html = "text/html; charset=utf-8"
    return Latest({"/metrics": Page.of(METRICS), "/": Page.of(START, html)})


@contextmanager
def serving(routes: Routes | None = None, **kwargs: object) -> Iterator[Server]:
    server = Server("127.0.0.1:0", routes or pages_of(latest()), **kwargs)  # type: ignore[arg-type]
    server.start()
    try:
        yield server
    finally:
        server.stop()
        assert not any(thread.name == "web" for thread in threading.enumerate())


class Answer:
    """What came back, body read."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()


def get(
    server: Server, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        return Answer(connection.getresponse())
    finally:
        connection.close()


def raw(server: Server, data: bytes) -> bytes:
    """Send `data` and read until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(data)
        answer = b""
        while part := client.recv(65536):
            answer += part
        return answer


def test_metrics_are_served_as_text_that_every_prometheus_reads() -> None:
    with serving() as server:
        answer = get(server, "/metrics")
    assert (answer.status, answer.body) == (200, METRICS)
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Encoding"] is None


def test_metrics_are_compressed_for_who_asks() -> None:
    with serving() as server:
        answer = get(server, "/metrics", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert gzip.decompress(answer.body) == METRICS
    assert len(answer.body) < len(METRICS) / 5


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("br, x-gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=1.0", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("identity", False),
        ("*", False),
        ("", False),
        ("notgzip", False),
    ],
)
def test_gzip_is_negotiated_with_its_weight(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


def test_the_start_page_is_html() -> None:
    with serving() as server:
        answer = get(server, "/")
    assert (answer.status, answer.body) == (200, START)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"


def test_head_has_the_headers_of_get_and_no_body() -> None:
    with serving() as server:
        answer = get(server, "/metrics", "HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["Content-Length"] == str(len(METRICS))


def test_a_page_added_by_a_cycle_is_served_from_then_on() -> None:
    pages = latest()
    with serving(pages_of(pages)) as server:
        assert get(server, "/api/v1/engines").status == 404
        pages.pages = {"/api/v1/engines": Page.of(b"{}", "application/json")}
        answer = get(server, "/api/v1/engines")
        assert (answer.body, answer.headers["Content-Type"]) == (b"{}", "application/json")
        assert get(server, "/metrics").status == 404


def test_before_the_first_cycle_it_is_healthy_but_not_ready() -> None:
    pages = Latest()
    with serving(pages_of(pages)) as server:
        assert get(server, "/-/healthy").status == 200
        assert get(server, "/-/healthy", "HEAD").status == 200
        assert get(server, "/-/ready").status == 503
        assert get(server, "/metrics").status == 503
        pages.pages = latest().pages
        assert get(server, "/-/ready").status == 200
        assert get(server, "/metrics").status == 200


def test_unknown_paths_and_methods_are_refused() -> None:
    with serving() as server:
        assert get(server, "/nothing").status == 404
        assert get(server, "/metrics/x").status == 404
        answer = get(server, "/metrics", "DELETE")
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        assert get(server, "/-/reload").status == 405


def test_a_query_does_not_change_the_page() -> None:
    with serving() as server:
        assert get(server, "/metrics?name[]=x").body == METRICS


def test_reload_is_off_unless_switched_on() -> None:
    with serving() as server:
        assert get(server, "/-/reload", "POST").status == 403


def test_reload_calls_back_and_tells_what_is_wrong() -> None:
    results: list[str | None] = [None, "targets[0].url: must start with http://"]
    with serving(pages_of(latest(), lambda: results.pop(0))) as server:
        assert get(server, "/-/reload", "POST").status == 200
        answer = get(server, "/-/reload", "PUT")
    assert answer.status == 500
    assert b"targets[0].url" in answer.body


def test_a_failing_page_is_a_500_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Request) -> Response:
        raise RuntimeError("secret detail")

    routes = Routes(latest(), {"/broken": Route(fail)})
    with serving(routes) as server:
        answer = get(server, "/broken")
        assert answer.status == 500
        assert b"secret" not in answer.body
        assert get(server, "/metrics").status == 200
    assert "/broken" in caplog.text


def test_one_connection_serves_many_requests() -> None:
    with serving() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        for _ in range(3):
            connection.request("GET", "/metrics")
            assert connection.getresponse().read() == METRICS
            assert connection.sock is not None
        connection.close()


def test_pipelined_requests_are_answered_in_order() -> None:
    with serving() as server:
        answer = raw(
            server, b"GET /-/healthy HTTP/1.1\r\n\r\nGET /x HTTP/1.1\r\nConnection: close\r\n\r\n"
        )
    assert answer.index(b"200 OK") < answer.index(b"404 Not Found")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 1_000_000, 431),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\n\r\n", 400),
        (b"GET http://h/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX : y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"POST /-/reload HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"POST /-/reload HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ],
)
def test_a_bad_request_is_answered_and_its_connection_closed(data: bytes, status: int) -> None:
    with serving() as server:
        assert raw(server, data).startswith(b"HTTP/1.1 %d " % status)
        assert get(server, "/metrics").status == 200


@given(st.binary(max_size=300))
def test_random_bytes_are_a_request_or_a_bad_one(data: bytes) -> None:
    try:
        assert parse_request(data).path.startswith("/")
    except BadRequestError:
        return


# --- who may ----------------------------------------------------------------------------------


class Only(OpenGate):
    """Lets in who shows one password."""

    authenticates = True
    headers: Mapping[str, str] = {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}

    async def may(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization") == "Basic eDp5"


def test_without_credentials_only_the_probes_answer() -> None:
    with serving(gate=Only()) as server:
        for path in ("/metrics", "/", "/nothing", "/-/reload"):
            answer = get(server, path)
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Basic realm=")
            assert answer.headers["X-Frame-Options"] == "DENY"
        assert get(server, "/-/healthy").status == 200
        assert get(server, "/-/ready").status == 200
        assert get(server, "/metrics", headers={"Authorization": "Basic eDp5"}).status == 200


def test_a_gate_that_fails_lets_nobody_in() -> None:
    class Broken(OpenGate):
        async def may(self, headers: Mapping[str, str]) -> bool:
            raise RuntimeError

    with serving(gate=Broken()) as server, pytest.raises(http.client.HTTPException):
        get(server, "/metrics")


def test_tls_is_asked_for_at_each_connection() -> None:
    asked = []

    class Tls(OpenGate):
        def tls(self) -> ssl.SSLContext:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
            asked.append(context)
            return context

    client = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    with serving(gate=Tls()) as server:
        for _ in range(2):
            connection = http.client.HTTPSConnection(
                "localhost", server.port, timeout=10, context=client
            )
            connection.request("GET", "/metrics")
            assert connection.getresponse().read() == METRICS
            connection.close()
    assert len(asked) == 2


# --- where it listens -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listen", "host", "port", "exposed"),
    [
        ("127.0.0.1:10158", "127.0.0.1", 10158, False),
        ("[::1]:10158", "::1", 10158, False),
        ("localhost:0", "localhost", 0, False),
        (":10158", "", 10158, True),
        ("0.0.0.0:1", "0.0.0.0", 1, True),
        ("[::]:1", "::", 1, True),
        ("10.0.0.5:1", "10.0.0.5", 1, True),
        ("host.test:1", "host.test", 1, True),
    ],
)
def test_a_listen_address_is_taken_apart(listen: str, host: str, port: int, exposed: bool) -> None:
    assert split(listen) == (host, port)
    assert is_exposed(listen) is exposed


@pytest.mark.parametrize("listen", ["", "10158", "h:", "h:x", "h:70000", "h:-1", "h:\u0661"])
def test_a_malformed_listen_address_says_what_was_expected(listen: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:10158"):
        split(listen)


def test_a_taken_port_says_what_to_do() -> None:
    with serving() as first:
        second = Server(f"127.0.0.1:{first.port}", pages_of(latest()))
        with pytest.raises(OSError, match="is another exporter running there"):
            second.start()
        second.stop()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::1]"])
def test_every_kind_of_address_can_be_listened_on(host: str) -> None:
    server = Server(f"{host}:0", pages_of(latest()))
    try:
        server.start()
    except OSError:
        pytest.skip("no IPv6 here")
    try:
        where = "::1" if host == "[::1]" else "127.0.0.1"
        with socket.create_connection((where, server.port), timeout=10) as client:
            client.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        server.stop()


def test_an_exposed_address_without_authentication_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        for listen, gate in (("127.0.0.1:0", OpenGate()), ("0.0.0.0:0", Only())):
            server = Server(listen, pages_of(latest()), gate=gate)
            server.start()
            server.stop()
        assert caplog.text == ""
        server = Server("0.0.0.0:0", pages_of(latest()))
        server.start()
        server.stop()
    assert "0.0.0.0:0 is open to other machines without authentication" in caplog.text


def test_a_server_that_was_never_started_can_be_stopped() -> None:
    Server("127.0.0.1:0", pages_of(latest())).stop()
