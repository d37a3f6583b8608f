"""One TCP or TLS connection to one target, for one request at a time."""

from __future__ import annotations

import asyncio
import errno
import ssl
from typing import cast

from kvcache_exporter.garbage import untie
from kvcache_exporter.scrape.http1 import ResponseReader


class DisconnectedError(ConnectionResetError):
    """The peer closed before the first byte of an answer: a reused connection may be tried anew."""


class Connection(asyncio.Protocol):
    """Feeds what arrives to the reader of the request in flight; closes on anything unasked for."""

    __slots__ = ("_answered", "_reader", "_transport", "_waiter", "reused")

    def __init__(self) -> None:
        self.reused = False
        self._answered = False
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def usable(self) -> bool:
        """Whether a request may be sent."""
        return (
            self._transport is not None
            and self._reader is None
            and not self._transport.is_closing()
        )

    async def request(self, request: bytes, reader: ResponseReader) -> None:
        """Send `request` and fill `reader`; the connection is closed unless it can be reused."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise DisconnectedError(errno.ECONNRESET, "closed while idle")
        self._reader, self._answered = reader, False
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            transport.write(request)
            await self._waiter
            self.reused = reader.keep_alive
        except BaseException:
            self.close()
            raise
        finally:
            self._reader = self._waiter = None
            if not reader.keep_alive:
                self.close()

    def close(self) -> None:
        """Drop the connection at once, without draining what the peer still sends."""
        if self._transport is not None:
            self._transport.abort()
            untie(self._transport)
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport: the connection is open."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Feed the reader; close when nobody asked for anything."""
        if self._reader is None:
            self.close()
            return
        self._answered = True
        try:
            if self._reader.feed(data):
                self._finish(None)
        except Exception as error:  # the waiting scrape raises it
            self._finish(error)

    def eof_received(self) -> None:
        """Note that the peer sends no more; returning None closes our side too."""
        self._ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is gone."""
        self._ended(exc)
        if self._transport is not None:
            untie(self._transport)
        self._transport = None

    def _ended(self, exc: Exception | None) -> None:
        if self._reader is None:
            return
        if not self._answered:
            # With TLS 1.3 a refused client certificate shows only now.
            refused = isinstance(exc, ssl.SSLError)
            self._finish(exc if refused else DisconnectedError(errno.ECONNRESET, "no first byte"))
            return
        try:
            self._reader.end()
            self._finish(None)
        except Exception as error:  # the waiting scrape raises it
            self._finish(exc or error)

    def _finish(self, error: Exception | None) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
