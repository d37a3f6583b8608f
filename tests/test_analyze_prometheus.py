"""A Prometheus range gives the same verdicts as the pages it was scraped from."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from kvcache_exporter.analyze import InputError, prometheus, replay

START = 1_790_000_000.0
Point = tuple[float, float]


class Server:
    """Answers ``query_range`` as Prometheus does: 5 minutes of look-back, 11,000 points at most."""

    def __init__(self) -> None:
        self.series: list[tuple[dict[str, str], list[Point]]] = []
        self.queries: list[dict[str, str]] = []
        self.answer: dict[str, Any] | None = None

    def query(self, given: dict[str, str]) -> dict[str, Any]:
        self.queries.append(given)
        if self.answer is not None:
            return self.answer
        start, end, step = (float(given[key]) for key in ("start", "end", "step"))
        if (end - start) / step + 1 > 11_000:
            return {"status": "error", "error": "exceeded maximum resolution of 11,000 points"}
        inner = given["query"].removeprefix("timestamp(").removesuffix(")")
        stamps = inner != given["query"]
        names = re.search(r'__name__=~"(.*?)"[,}]', inner)
        plain = inner.partition(" and on")[0]
        wanted = names[1] if names and not re.fullmatch(r"\w+", plain) else re.escape(plain)
        found = [
            {"metric": metric, "values": _range(points, start, end, step, stamps)}
            for metric, points in self.series
            if re.fullmatch(wanted, metric["__name__"])
        ]
        result = [one for one in found if one["values"]]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def _range(
    points: list[Point], start: float, end: float, step: float, stamps: bool
) -> list[list[Any]]:
    values, time = [], start
    while time <= end:
        known = [point for point in points if time - 300 < point[0] <= time]
        if known:
            at, value = known[-1]
            values.append([time, repr(at if stamps else value)])
        time += step
    return values


@pytest.fixture
def server() -> Iterator[tuple[str, Server]]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = {key: value[0] for key, value in parse_qs(urlparse(self.path).query).items()}
            body = json.dumps(state.query(given)).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    httpd = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}", state
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def scraped(state: Server, until: float, used: int = 100, **labels: str) -> None:
    identity = {"instance": "10.0.0.1:8000", "job": "vllm", **labels}
    engine = {"engine": "0", "model_name": "tiny"}
    times = [START + 15 * i for i in range(int(until // 15))]
    rows = {
        "vllm:num_requests_running": 0.0,
        "vllm:num_requests_waiting": 0.0,
        "vllm:kv_cache_usage_perc": used / 8191,
    }
    for name, value in rows.items():
        points = [(time, value) for time in times]
        state.series.append(({"__name__": name, **identity, **engine}, points))
    info = {"__name__": "vllm:cache_config_info", **identity, "num_gpu_blocks": "8192"}
    state.series.append((info | {"engine": "0", "block_size": "16"}, [(t, 1.0) for t in times]))
    start = {"__name__": "process_start_time_seconds", **identity}
    state.series.append((start, [(t, START - 60) for t in times]))


def test_a_range_becomes_readings(server: tuple[str, Server]) -> None:
    url, state = server
    scraped(state, 3600)
    report = replay(prometheus.frames(url, START, START + 3600))
    (one,) = report.engines
    assert one.reading is not None
    assert (one.reading.used_blocks, one.reading.pool_blocks) == (100, 8191)
    assert one.reading.process_start_time_seconds == START - 60
    assert one.target == "vllm/10.0.0.1:8000"


def test_targets_are_told_apart_by_pod(server: tuple[str, Server]) -> None:
    url, state = server
    scraped(state, 600, pod="a", namespace="prod")
    scraped(state, 600, used=3, pod="b", namespace="prod")
    report = replay(prometheus.frames(url, START, START + 600))
    assert [one.reading and one.reading.used_blocks for one in report.engines] == [100, 3]


def test_repetitions_after_a_target_vanished_are_dropped(server: tuple[str, Server]) -> None:
    url, state = server
    scraped(state, 600)
    times = [frame.time for frame in prometheus.frames(url, START, START + 3600)]
    assert max(times) < START + 600 + 60


def test_a_long_range_is_asked_for_in_chunks(server: tuple[str, Server]) -> None:
    url, state = server
    scraped(state, 600)
    list(prometheus.frames(url, START, START + 3 * 86_400, step_seconds=15))
    spans = [float(q["end"]) - float(q["start"]) for q in state.queries]
    assert max(spans) / 15 < 11_000
    assert len({q["start"] for q in state.queries}) == 2


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"status": "error", "error": "query timed out"}, "query timed out"),
        ({"status": "success", "data": {"result": []}}, "no vLLM series in this range"),
    ],
)
def test_a_server_that_cannot_help_is_named_with_its_reason(
    server: tuple[str, Server], answer: dict[str, Any], complaint: str
) -> None:
    url, state = server
    state.answer = answer
    with pytest.raises(InputError, match=complaint):
        list(prometheus.frames(url, START, START + 600))


def test_nobody_listening_is_an_input_error() -> None:
    with pytest.raises(InputError, match="does not answer"):
        list(prometheus.frames("http://127.0.0.1:9", START, START + 600))
