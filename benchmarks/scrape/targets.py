"""A fleet of targets in one process of its own: one loopback address each, pages from memory."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from multiprocessing.synchronize import Event

PORT = 9123
FIRST = IPv4Address("127.1.0.1")
HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Sun, 01 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-length: %d\r\ncontent-type: text/plain; version=1.0.0; charset=utf-8\r\n\r\n"
)


class _Target(asyncio.Protocol):
    """Answers every request at once: the filtered page where names are asked for."""

    def __init__(self, whole: bytes, filtered: bytes) -> None:
        self._whole = whole
        self._filtered = filtered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        version = data.startswith(b"GET /version")
        page = b'{"version": "0.32.0"}' if version else self._whole
        self._transport.write(self._filtered if data.startswith(b"GET /metrics/?") else page)


def address(number: int) -> str:
    """Return host:port of a target."""
    return f"{FIRST + number}:{PORT}"


@contextmanager
def serving(count: int, whole: bytes, filtered: bytes) -> Iterator[list[str]]:
    """Serve `count` targets; yields their host:port."""
    context = multiprocessing.get_context("spawn")
    ready, over = context.Event(), context.Event()
    process = context.Process(
        target=_serve, args=(count, _response(whole), _response(filtered), ready, over), daemon=True
    )
    process.start()
    try:
        if not ready.wait(30):
            raise RuntimeError("the targets did not start: is the port taken?")
        yield [address(number) for number in range(count)]
    finally:
        over.set()
        process.join(10)


def _response(page: bytes) -> bytes:
    return HEAD % len(page) + page


def _serve(count: int, whole: bytes, filtered: bytes, ready: Event, over: Event) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in range(count):
            sock = socket.create_server((str(FIRST + number), PORT), backlog=16)
            await loop.create_server(lambda: _Target(whole, filtered), sock=sock)
        ready.set()
        while not over.is_set():
            await asyncio.sleep(0.2)

    asyncio.run(main())
