"""What a scrape costs the engine: CPU burnt in a running vLLM's API process, by route."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from benchmarks.scrape.processes import own_cpu_seconds
from kvcache_exporter.engines import vllm

SCRAPES = 200


@dataclass(frozen=True, slots=True)
class EngineCost:
    """CPU milliseconds in the engine's API process and bytes, per scrape."""

    route: str
    cpu_ms: float
    bytes: int


def measure(url: str, pid: int) -> list[EngineCost]:
    """Ask a running vLLM, whose API process is `pid`, by both routes."""
    names = [*(f"vllm:{name}" for name in sorted(vllm.NAMES)), *sorted(vllm.PLAIN)]
    query = "&".join(f"name%5B%5D={quote(name, safe=':')}" for name in names)
    routes = {"`/metrics`": "/metrics", "`/metrics/?name[]=...`": f"/metrics/?{query}"}
    return [_measure(url, pid, route, path) for route, path in routes.items()]


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
