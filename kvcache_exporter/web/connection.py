"""One client connection: handshake, request, answer, each under a deadline."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass

from kvcache_exporter.garbage import untie
from kvcache_exporter.web.gate import Gate
from kvcache_exporter.web.pages import Routes
from kvcache_exporter.web.request import (
    MAX_HEAD_BYTES,
    BadRequestError,
    Request,
    Response,
    head_of,
    parse_request,
    text,
)
from kvcache_exporter.web.turn import Turn

log = logging.getLogger(__name__)

SLICE_BYTES = 256 * 1024
"""Bounds what a client that does not read can make us keep; most pages fit as gzip."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a client may take in each phase, and how many may be connected."""

    connections: int = 64
    handshake_seconds: float = 5.0
    head_seconds: float = 5.0
    idle_seconds: float = 120.0
    """Between two requests of a kept-alive connection; longer than usual scrape intervals."""
    write_seconds: float = 10.0
    linger_seconds: float = 1.0


class Connection:
    """Answers the requests of one client until it leaves, stalls or misbehaves."""

    def __init__(
        self,
        client: socket.socket,
        routes: Routes,
        limits: Limits,
        gate: Gate,
        turn: Turn,
    ) -> None:
        self.waiting = True
        """No request is being answered: the connection may be dropped to make room."""
        self.answered = False
        """At least one request was: it is not one of the silent ones."""
        self._client = client
        self._routes = routes
        self._limits = limits
        self._gate = gate
        self._turn = turn
        self._reader = asyncio.StreamReader(MAX_HEAD_BYTES)
        self._writer: asyncio.StreamWriter | None = None

    def abort(self) -> None:
        """Close at once, whatever is still to be sent."""
        if self._writer is not None:
            self._writer.transport.abort()
            untie(self._writer.transport)

    async def run(self) -> None:
        """Serve the connection; never raises."""
        try:
            writer = await self._open(self._gate.tls())
            while await self._exchange(writer):
                self.waiting = True
        except (OSError, EOFError, TimeoutError, ssl.SSLError):
            pass  # the client left or stalled: its own affair
        except Exception:
            log.exception("a connection failed")
        finally:
            self.abort()

    async def _open(self, context: ssl.SSLContext | None) -> asyncio.StreamWriter:
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(self._reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            self._client,
            ssl=context,
            ssl_handshake_timeout=self._limits.handshake_seconds if context else None,
            ssl_shutdown_timeout=self._limits.linger_seconds if context else None,
        )
        # With a mark of 0, drain() returns only when everything has left for the kernel.
        transport.set_write_buffer_limits(high=0)
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)
        return self._writer

    async def _exchange(self, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is to be closed."""
        try:
            request = await self._read_request()
        except asyncio.LimitOverrunError:
            return await self._refuse(writer, text(431, "the headers exceed 16 KiB"))
        except BadRequestError as error:
            return await self._refuse(writer, text(400, str(error)))
        with self._turn.answering():
            response = await self._answer(request)
            async with asyncio.timeout(self._limits.write_seconds):
                await self._write(writer, response, request.method != "HEAD", request.keep_alive)
        self.answered = True
        return request.keep_alive

    async def _read_request(self) -> Request:
        limits = self._limits
        async with asyncio.timeout(limits.idle_seconds if self.answered else limits.head_seconds):
            first = await self._reader.readexactly(1)
        async with asyncio.timeout(limits.head_seconds):
            rest = await self._reader.readuntil(b"\r\n\r\n")
        return parse_request((first + rest)[:-4])

    async def _answer(self, request: Request) -> Response:
        route = self._routes.find(request.path)
        public = route is not None and route.public
        if not public and not await self._gate.may(request.headers):
            return text(401, "unauthorised", {"WWW-Authenticate": 'Basic realm="kvcache-exporter"'})
        self.waiting = False
        if route is None:
            return text(404, "not found; the start page / lists what there is")
        if request.method not in route.methods:
            return text(405, "method not allowed", {"Allow": ", ".join(route.methods)})
        try:
            return route.answer(request)
        except Exception:
            log.exception("the page %s failed", request.path)
            return text(500, "this page failed: the log says why")

    async def _refuse(self, writer: asyncio.StreamWriter, response: Response) -> bool:
        """Answer and wait a moment for the client to read it: a reset would discard the answer."""
        async with asyncio.timeout(self._limits.linger_seconds):
            await self._write(writer, response, with_body=True, keep_alive=False)
            with suppress(OSError, NotImplementedError):
                writer.write_eof()
            while await self._reader.read(SLICE_BYTES):
                pass
        return False

    async def _write(
        self, writer: asyncio.StreamWriter, response: Response, with_body: bool, keep_alive: bool
    ) -> None:
        head = head_of(response, self._gate.headers, keep_alive=keep_alive)
        body = memoryview(response.body if with_body else b"")
        writer.write(b"".join((head, body[:SLICE_BYTES])))  # in one packet, for one wake-up
        await writer.drain()
        for start in range(SLICE_BYTES, len(body), SLICE_BYTES):
            writer.write(body[start : start + SLICE_BYTES])
            await writer.drain()
