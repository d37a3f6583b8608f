"""Real servers on one loopback port that do their worst; the first part of a path says what."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache

from benchmarks.scrape.pages import Busy

STEP_SECONDS = 1.0
PIECE = 64 * 1024
BOMB_BYTES = 256 * 2**20


def _head(length: int | str, more: str = "", status: str = "200 OK") -> bytes:
    kind = "Content-Type: text/plain; version=0.0.4"
    return f"HTTP/1.1 {status}\r\n{kind}\r\nContent-Length: {length}\r\n{more}\r\n".encode()


@cache
def _bomb() -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(2**20)
    return b"".join(squeeze.compress(zeros) for _ in range(BOMB_BYTES // 2**20)) + squeeze.flush()


def _page(body: bytes, more: str = "", status: str = "200 OK") -> Callable[[], bytes]:
    return lambda: _head(len(body), more, status) + body


ONCE: Mapping[str, Callable[[], bytes]] = {
    "html": _page(b"<html></html>\n"),
    "json": _page(b"{}\n"),
    "empty": _page(b""),
    "foreign": _page(b"node_load1 1\n"),
    "redirects": _page(b"", "Location: http://169.254.169.254/\r\n", "302 Found"),
    "asks-who-we-are": _page(b"", status="401 Unauthorized"),
    "starting": _page(b"", status="503 Service Unavailable"),
    "negative-length": lambda: _head(-5) + b"up 1\n",
    "two-lengths": _page(b"up 1\n", "Content-Length: 6\r\n"),
    "half-a-gigabyte": lambda: _head(500_000_000),
    "cut": lambda: _head(1000) + b"vllm:num_requests_running 1",
    "invalid-utf8": _page(b'vllm:num_requests_running{model_name="\xff"} 1\n'),
    "long-number": _page(b"vllm:num_requests_running " + b"9" * 100_000 + b"\n"),
    "many-series": _page(b"".join(b'vllm:x{a="%d"} 1\n' % n for n in range(200_000))),
    "long-label": _page(b'vllm:num_requests_running{a="' + b"x" * 2**20 + b'"} 1\n'),
    "many-labels": _page(
        b"vllm:num_requests_running{" + b"".join(b'a%d="",' % n for n in range(9000)) + b"} 1\n"
    ),
    "gzip-bomb": lambda: _head(len(_bomb()), "Content-Encoding: gzip\r\n") + _bomb(),
}
"""Sent once, then the connection is closed."""
FOR_EVER: Mapping[str, tuple[bytes, bytes]] = {
    "endless-body": (_head("8", "").replace(b"Content-Length: 8\r\n", b""), b"vllm:x 1\n" * 7000),
    "endless-header": (b"HTTP/1.1 200 OK\r\n", b"X-Pad: x\r\n" * 6000),
    "endless-chunk-line": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;",
        b"x" * PIECE,
    ),
    "drips": (b"HTTP/1.1 200 OK\r\n", b"X"),
    "hangs": (b"", b""),
}
"""What comes first, and what comes again and again; one byte at a time where it is one byte."""
NAMES = (*ONCE, *FOR_EVER)


class Servers:
    """Serves `/NAME/metrics` by name, and a busy engine for any other name."""

    def __init__(self, page: bytes) -> None:
        self._busy = Busy(page)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}/metrics"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Servers]:
        _bomb()  # making it takes longer than a scrape may
        server = await asyncio.start_server(self._talk, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, EOFError, asyncio.CancelledError):
                while await self._answer(reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; False when the connection is to be closed."""
        request = await reader.readuntil(b"\r\n\r\n")
        name = request.split(b"/", 2)[1].decode()
        if name in ONCE:
            writer.write(ONCE[name]())
            await writer.drain()
            await asyncio.sleep(0.1)  # a reset would discard what has not been read
            return False
        if name in FOR_EVER:
            first, again = FOR_EVER[name]
            writer.write(first)
            while not reader.at_eof():
                writer.write(again)
                await writer.drain()
                await asyncio.sleep(0.0 if len(again) > 1 else 0.05)
            return False
        page = self._busy.at(int(asyncio.get_running_loop().time() / STEP_SECONDS))
        version = b'{"version": "0.32.0"}\n'
        body = version if b"/version" in request.split(b"\r\n", 1)[0] else page
        writer.write(_head(len(body)) + body)
        await writer.drain()
        return True
