"""The server answers what the last cycle rendered, to whom it should and in the form asked for."""

from __future__ import annotations

import gzip
import http.client

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_serving import METRICS, START, get, latest, raw, serving

from kvcache_exporter.web import Latest, Page, pages_of
from kvcache_exporter.web.pages import Route, Routes, accepts_gzip
from kvcache_exporter.web.request import BadRequestError, Request, Response, parse_request


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
