"""A fleet of targets in a process of its own: a loopback address each, pages of engines at work."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
from collections.abc import Iterator, Mapping, MutableSequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from multiprocessing.synchronize import Event

from benchmarks.scrape.pages import Busy

PORT = 9123
STEP_SECONDS = 0.1
FIRST = IPv4Address("127.1.0.1")
HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Sun, 01 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-length: %d\r\ncontent-type: text/plain; version=1.0.0; charset=utf-8\r\n\r\n"
)
AGENTS: Mapping[str, bytes] = {
    "kvcache-exporter": b"kvcache-exporter/",
    "prometheus": b"Prometheus/",
    "vmagent": b"vm_promscrape",
}
"""How the User-Agent of each scraper begins."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What one scraper has asked of the fleet so far."""

    scrapes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """Running targets."""

    addresses: list[str]
    counts: MutableSequence[int]

    def asked(self, agent: str) -> Asked:
        """Return what a scraper of `AGENTS` has asked so far."""
        place = 2 * list(AGENTS).index(agent)
        return Asked(self.counts[place], self.counts[place + 1])


class _Pages:
    """What every target serves now; made once a step, so that asking them costs next to nothing."""

    def __init__(self, whole: bytes, filtered: bytes, step_seconds: float) -> None:
        self._busy = Busy(whole), Busy(filtered)
        self._step_seconds = step_seconds
        self._step, self._now = -1, (b"", b"")

    def now(self) -> tuple[bytes, bytes]:
        step = int(time.monotonic() / self._step_seconds)
        if step != self._step:
            whole, filtered = (_response(one.at(step)) for one in self._busy)
            self._step, self._now = step, (whole, filtered)
        return self._now


class _Target(asyncio.Protocol):
    """Answers every request at once: the filtered page where names are asked for."""

    def __init__(self, pages: _Pages, counts: MutableSequence[int]) -> None:
        self._pages = pages
        self._counts = counts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET /version"):
            self._transport.write(_response(b'{"version": "0.32.0"}'))
            return
        whole, filtered = self._pages.now()
        answer = filtered if data.startswith(b"GET /metrics/?") else whole
        self._transport.write(answer)
        for place, begin in enumerate(AGENTS.values()):
            if b"\r\nUser-Agent: " + begin in data:
                self._counts[2 * place] += 1
                self._counts[2 * place + 1] += len(answer)


@contextmanager
def serving(
    count: int, whole: bytes, filtered: bytes, step_seconds: float = STEP_SECONDS
) -> Iterator[Fleet]:
    """Serve `count` targets, whose pages are other ones after each step."""
    context = multiprocessing.get_context("spawn")
    ready, over = context.Event(), context.Event()
    counts = context.Array("q", 2 * len(AGENTS), lock=False)
    arguments = (count, whole, filtered, step_seconds, counts, ready, over)
    process = context.Process(target=_serve, args=arguments, daemon=True)
    process.start()
    try:
        if not ready.wait(30):
            raise RuntimeError("the targets did not start: is the port taken?")
        yield Fleet([f"{FIRST + number}:{PORT}" for number in range(count)], counts)
    finally:
        over.set()
        process.join(10)


def _response(page: bytes) -> bytes:
    return HEAD % len(page) + page


def _serve(
    count: int,
    whole: bytes,
    filtered: bytes,
    step_seconds: float,
    counts: MutableSequence[int],
    ready: Event,
    over: Event,
) -> None:
    async def main() -> None:
        loop, pages = asyncio.get_running_loop(), _Pages(whole, filtered, step_seconds)
        for number in range(count):
            sock = socket.create_server((str(FIRST + number), PORT), backlog=16)
            await loop.create_server(lambda: _Target(pages, counts), sock=sock)
        ready.set()
        while not over.is_set():
            await asyncio.sleep(0.2)

    asyncio.run(main())
