"""A server of pages for a test, and clients for it."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kvcache_exporter.web import Latest, Page, Server, pages_of
from kvcache_exporter.web.pages import Routes

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
