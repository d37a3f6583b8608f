"""A GET-only HTTP server in a thread of its own that no client can stall.

Written by hand because none of the usual Python servers survives what an open port meets: with TLS
on, one silent connection stops `prometheus_client.start_http_server` and cheroot (the handshake is
in the accept loop); 200 slow ones stop waitress, gunicorn and uvicorn; running out of files makes
several of them spin. Here every phase has a deadline, and above the cap the connection that has
waited longest without a request makes room for the new one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial

from kvcache_exporter.web.connection import Connection, Limits
from kvcache_exporter.web.gate import Gate, OpenGate
from kvcache_exporter.web.listen import bind, is_exposed
from kvcache_exporter.web.pages import Routes
from kvcache_exporter.web.turn import Turn

log = logging.getLogger(__name__)


class Server:
    """Serves routes on one address; `start` binds and returns, `stop` ends within a second."""

    def __init__(
        self,
        listen: str,
        routes: Routes,
        *,
        gate: Gate | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`listen` is HOST:PORT; `gate` decides on TLS and on who may read, default: everybody."""
        self._listen = listen
        self._routes = routes
        self._gate = gate or OpenGate()
        self._limits = limits or Limits()
        self.turn = Turn()
        """Whoever computes for long elsewhere in the process asks it to give way."""
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._over = asyncio.Event()
        self._starved = False
        self._thread: threading.Thread | None = None
        self._end: Callable[[], object] = lambda: None
        self.port = 0

    def start(self) -> None:
        """Bind and serve; raises OSError, with a text for the operator, if that is impossible."""
        listening = bind(self._listen)
        self.port = listening.getsockname()[1]
        if is_exposed(self._listen) and not self._gate.authenticates:
            log.warning(
                "%s is open to other machines without authentication: use --web-config-file, or"
                " listen on 127.0.0.1",
                self._listen,
            )
        loop = asyncio.new_event_loop()
        self._end = partial(loop.call_soon_threadsafe, self._over.set)
        self._thread = threading.Thread(
            target=self._run, args=(loop, listening), name="web", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting, drop every connection, end the thread."""
        if self._thread is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop has ended by itself
                self._end()
            self._thread.join(1.0)
        self._gate.close()

    def _run(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        with listening, closing(loop):
            loop.run_until_complete(self._until_over(loop, listening))

    async def _until_over(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        loop.add_reader(listening, self._accept, loop, listening)
        await self._over.wait()
        loop.remove_reader(listening)
        tasks = list(self._connections.values())
        while self._connections:
            self._drop(next(iter(self._connections)))
        if tasks:
            await asyncio.wait(tasks, timeout=0.5)

    def _accept(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        try:
            client, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client has left meanwhile
        except OSError as error:
            self._starve(error, loop, listening)
            return
        self._starved = False
        self.turn.arrived()
        if len(self._connections) < self._limits.connections or self._evict():
            self._serve(client, loop)
        else:
            client.close()

    def _starve(
        self, error: OSError, loop: asyncio.AbstractEventLoop, listening: socket.socket
    ) -> None:
        """Give a file back and pause instead of spinning: mostly, files have run out."""
        if not self._starved:
            log.warning("cannot accept connections: %s", error.strerror)
        self._starved = True
        self._evict()
        loop.remove_reader(listening)
        loop.call_later(0.1, self._resume, loop, listening)

    def _resume(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        if not self._over.is_set():
            loop.add_reader(listening, self._accept, loop, listening)

    def _serve(self, client: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        client.setblocking(False)
        connection = Connection(client, self._routes, self._limits, self._gate, self.turn)
        task = loop.create_task(connection.run())
        self._connections[connection] = task

        def done(_: asyncio.Task[None]) -> None:
            self._connections.pop(connection, None)
            client.close()  # a task cancelled before its first step has not taken it over

        task.add_done_callback(done)

    def _evict(self) -> bool:
        """Make room: drop the oldest silent connection, else the oldest idle one."""
        waiting = [connection for connection in self._connections if connection.waiting]
        if waiting:
            self._drop(min(waiting, key=lambda connection: connection.answered))
        return bool(waiting)

    def _drop(self, connection: Connection) -> None:
        connection.abort()
        self._connections.pop(connection).cancel()
