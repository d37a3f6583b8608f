"""What a scrape costs the engine: CPU burnt in a running vLLM's API process, by route."""

from __future__ import annotations

import http.client
import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit
from urllib.request import urlopen

from benchmarks.scrape.processes import own_cpu_seconds
from kvcache_exporter.engines import vllm
from kvcache_exporter.scrape.filtered import filtered_path

SCRAPES = 200
ROUNDS = 3
REAL_VLLM = Path(__file__).parents[2] / "tests" / "real_vllm"


@dataclass(frozen=True, slots=True)
class EngineCost:
    """CPU milliseconds in the engine's API process and bytes, per scrape."""

    route: str
    cpu_ms: float
    bytes: int


@contextmanager
def installed() -> Iterator[tuple[str, int] | None]:
    """Start the vLLM that `make real-vllm` installs and yield its URL and API process, if any."""
    sys.path.insert(0, str(REAL_VLLM))
    server = importlib.import_module("server")
    if not (server.VENV / "ready").exists():
        yield None
        return
    with TemporaryDirectory() as folder:
        vllm_server = server.start(Path(folder))
        try:
            yield vllm_server.url, vllm_server.process.pid
        finally:
            server.stop(vllm_server)


def measure(url: str, pid: int) -> list[EngineCost]:
    """Ask a running vLLM, whose API process is `pid`, by both routes; the best of the rounds."""
    names = [*(f"vllm:{name}" for name in sorted(vllm.NAMES)), *sorted(vllm.PLAIN)]
    page = f"http://{urlsplit(url).netloc}/metrics"
    with urlopen(page, timeout=30) as answer:
        path = filtered_path(page, names, answer.read())
    routes = {"`/metrics`": "/metrics", "`/metrics/?name[]=...`": path}
    return [
        min((_measure(url, pid, route, path) for _ in range(ROUNDS)), key=lambda one: one.cpu_ms)
        for route, path in routes.items()
    ]


def _measure(url: str, pid: int, route: str, path: str) -> EngineCost:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    size = 0
    before, start = own_cpu_seconds(pid), time.monotonic()
    for _ in range(SCRAPES):
        connection.request("GET", path)
        size = len(connection.getresponse().read())
    took, used = time.monotonic() - start, own_cpu_seconds(pid) - before
    before = own_cpu_seconds(pid)
    time.sleep(took)  # what the process does anyway is not ours
    idle = own_cpu_seconds(pid) - before
    connection.close()
    return EngineCost(route, max(0.0, used - idle) / SCRAPES * 1e3, size)
