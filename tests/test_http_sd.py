"""Lists over HTTP: a bad answer keeps the last good list and says why, and nothing hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kvcache_exporter.discovery.http_sd import MAX_BYTES, HttpSd
from kvcache_exporter.sd_config import HttpSdConfig

GOOD = b'[{"targets": ["10.0.0.5:8000"], "labels": {"team": "search"}}]'
Answer = Callable[[BaseHTTPRequestHandler], None]


def answer(
    body: bytes, *, status: int = 200, kind: str = "application/json", length: int | None = None
) -> Answer:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)

    return send


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Never silent, never done."""
    answer(b"[", length=10**6)(handler)
    for _ in range(1000):
        handler.wfile.write(b" ")
        time.sleep(0.02)


class Lists:
    """The server; tests change what it says."""

    def __init__(self, says: Answer) -> None:
        self.says = says
        self.headers: list[str | None] = []

    @contextmanager
    def followed(self) -> Iterator[HttpSd]:
        lists = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                lists.headers.append(self.headers["X-Prometheus-Refresh-Interval-Seconds"])
                try:
                    lists.says(self)
                except OSError:  # the client has gone
                    return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/targets"
        finder = HttpSd(HttpSdConfig(url, refresh_seconds=0.05), timeout_seconds=0.5)
        try:
            yield finder
        finally:
            finder.close()
            server.shutdown()
            server.server_close()
            thread.join()


def eventually(check: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.02)
    return False


def names(finder: HttpSd) -> list[str]:
    return [target.name for target in finder.find(0.0).targets]


def told(finder: HttpSd) -> str:
    return "".join(problem.text for problem in finder.find(0.0).problems)


def test_the_list_is_asked_for_again_and_again_as_prometheus_does() -> None:
    lists = Lists(answer(GOOD))
    with lists.followed() as finder:
        assert eventually(lambda: names(finder) == ["10.0.0.5:8000"])
        assert dict(finder.find(0.0).targets[0].labels) == {"team": "search"}
        lists.says = answer(b"[]")
        assert eventually(lambda: names(finder) == [])
    assert lists.headers[0] == "0.05"


BAD = {
    "500": answer(GOOD, status=500),
    "redirect": answer(GOOD, status=302),
    "html": answer(b"<html>", kind="text/html"),
    "cut": answer(GOOD, length=10**4),
    "no json": answer(b"[{"),
    "no list": answer(b"7"),
    "no groups": answer(b"[7]"),
    "no text": answer(b"\xff\xfe"),
    "nested": answer(b"[" * 100_000),
    "large": answer(b" " * (MAX_BYTES + 1)),
    "drips": drip,
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_answer_keeps_the_last_list_and_is_told(bad: Answer) -> None:
    lists = Lists(answer(GOOD))
    with lists.followed() as finder:
        assert eventually(lambda: names(finder) == ["10.0.0.5:8000"])
        lists.says = bad
        assert eventually(lambda: "its last 1 targets are kept" in told(finder))
        assert names(finder) == ["10.0.0.5:8000"]
        lists.says = answer(GOOD)
        assert eventually(lambda: told(finder) == "")


def test_before_the_first_good_list_it_is_not_complete() -> None:
    lists = Lists(answer(b"", status=503))
    with lists.followed() as finder:
        assert eventually(lambda: "503" in told(finder))
        assert not finder.find(0.0).complete
        lists.says = answer(GOOD)
        assert eventually(lambda: finder.find(0.0).complete)
