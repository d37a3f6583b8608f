"""Our own port with a large fleet behind it: start, answers to many clients, exit."""

from __future__ import annotations

import asyncio
import http.client
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks.scrape.processes import running
from benchmarks.scrape.scrapers import INTERVAL_SECONDS, OUR_ADDRESS, ours_filtered
from benchmarks.scrape.targets import serving

START_SECONDS = 60.0
CLIENTS = 50
HERDS = 2 * INTERVAL_SECONDS * 4
"""Over two cycles, so that some of them meet one being judged and rendered."""
PAUSE_SECONDS = 0.25
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Served:
    """Seconds and bytes as a client sees them."""

    targets: int
    start_seconds: float
    """From the start of the process to the first page with verdicts."""
    page_bytes: int
    gzip_bytes: int
    one_client: tuple[float, float]
    """Median and 99th percentile."""
    many_clients: tuple[float, float]
    exit_seconds: float


def measure(targets: int, whole: bytes, cut: bytes) -> Served:
    """Run the exporter on `targets` targets and ask it for its page."""
    with serving(targets, whole, cut) as fleet, tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "log"
        command = ours_filtered().command(folder, fleet.addresses)
        start = time.monotonic()
        with running(command, log) as process:
            if not ready_within(START_SECONDS):
                raise RuntimeError(f"no page within {START_SECONDS:g} s:\n{log.read_text()[-800:]}")
            started = time.monotonic() - start
            time.sleep(2 * INTERVAL_SECONDS)
            page, zipped = get()[1], get("gzip")[1]
            one, many = latencies(1), latencies(CLIENTS)
            start = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait()
            ended = time.monotonic() - start
    return Served(targets, started, page, zipped, one, many, ended)


def get(encoding: str = "identity") -> tuple[int, int]:
    """GET the metrics; return status and bytes."""
    connection = http.client.HTTPConnection(OUR_ADDRESS, timeout=30)
    try:
        connection.request("GET", "/metrics", headers={"Accept-Encoding": encoding})
        answer = connection.getresponse()
        return answer.status, len(answer.read())
    finally:
        connection.close()


def ready_within(seconds: float) -> bool:
    """Wait for the first page."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if get()[0] == 200:
                return True
        except OSError:
            pass
        time.sleep(0.02)
    return False


def latencies(clients: int) -> tuple[float, float]:
    """Let herds of `clients` ask at the same moment; return median and 99th percentile in seconds.

    One thread of plain sockets, so that the clients' own work counts for as little as possible.
    """
    took = asyncio.run(_herds(clients))
    return median(took), quantiles(took, n=100)[98]


async def _herds(clients: int) -> list[float]:
    took: list[float] = []
    for _ in range(HERDS):
        took += await asyncio.gather(*(_request() for _ in range(clients)))
        await asyncio.sleep(PAUSE_SECONDS)
    return took


async def _request() -> float:
    loop = asyncio.get_running_loop()
    host, _, port = OUR_ADDRESS.rpartition(":")
    start, answer = time.monotonic(), loop.create_future()
    await loop.create_connection(lambda: _Client(answer), host, int(port))
    assert (await answer).startswith(b"HTTP/1.1 200 ")
    return time.monotonic() - start


class _Client(asyncio.Protocol):
    """Asks once and takes what comes until the server closes."""

    def __init__(self, answer: asyncio.Future[bytes]) -> None:
        self._answer = answer
        self._first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self._first = self._first or data[:16]

    def connection_lost(self, exc: Exception | None) -> None:
        self._answer.set_result(self._first)
