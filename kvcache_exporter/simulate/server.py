"""Simulated servers over HTTP/1.1 on loopback, in whatever event loop they are started in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from http import HTTPStatus

from .site import JSON_TYPE, Answer, Site

MAX_HEAD_BYTES = 64 * 1024
TICK_SECONDS = 0.05
GONE = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)
"""How a connection ends; the last one because asyncio logs a cancelled handler as a crash."""


class Server:
    """Serves one site at `/`, or several below the first part of their paths, on one port."""

    def __init__(self, sites: Site | Mapping[str, Site], port: int = 0) -> None:
        self.port = port
        self._sites = sites
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def start(self) -> None:
        """Listen on loopback; port 0 takes a free one, which `port` then tells."""
        self._server = await asyncio.start_server(
            self._talk, "127.0.0.1", self.port, limit=MAX_HEAD_BYTES
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for writer in self._open:
            writer.close()
        await asyncio.gather(*filter(None, self._open.values()))

    def url(self, name: str = "") -> str:
        """Say where a site's metrics page is."""
        return f"http://127.0.0.1:{self.port}{'/' if name else ''}{name}/metrics"

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = asyncio.current_task()
        with suppress(*GONE):
            while head := await reader.readuntil(b"\r\n\r\n"):
                writer.write(_framed(self._answer(head)))
                await writer.drain()
                if b"connection: close" in head.lower():
                    break
        writer.close()
        del self._open[writer]

    def _answer(self, head: bytes) -> Answer:
        method, url, *_ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if method != "GET":
            return Answer(405, JSON_TYPE, b'{"detail":"Method Not Allowed"}')
        if isinstance(self._sites, Site):
            return self._sites.answer(url)
        name, slash, rest = url.removeprefix("/").partition("/")
        site = self._sites.get(name)
        return Answer(404, JSON_TYPE, b"{}") if site is None else site.answer(slash + rest)


class ServerThread:
    """A server with a loop and a thread of its own, for callers without an event loop.

    With `advance`, virtual time passes `factor` times as fast as real time meanwhile.
    """

    def __init__(
        self, server: Server, advance: Callable[[float], None] | None = None, factor: float = 1.0
    ) -> None:
        self.server = server
        self._advance = advance
        self._factor = factor
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stopping = asyncio.Event()

    def __enter__(self) -> Server:
        self._thread.start()
        self._call(self.server.start())
        self._ticking = asyncio.run_coroutine_threadsafe(self._tick(), self._loop)
        return self.server

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._ticking.result(10)
        self._call(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _tick(self) -> None:
        last = self._loop.time()
        while self._advance is not None and not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TICK_SECONDS)
            now = self._loop.time()
            self._advance((now - last) * self._factor)
            last = now


def _framed(answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        f"server: uvicorn\r\ncontent-type: {answer.content_type}\r\n"
        f"content-length: {len(answer.body)}\r\n\r\n"
    )
    return head.encode() + answer.body
