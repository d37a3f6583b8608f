"""The HTTP client of the scrape loop: one GET under one total deadline, never an exception.

Written by hand because none of the usual clients does what a scrape needs. CPU for one keep-alive
scrape of a 93 KB page over 500 targets (`python -m benchmarks.scrape` prints today's figure):
requests 0.51-0.62 ms, urllib3 0.24-0.27, aiohttp 0.14-0.19, httpx 22.5 (it grows with the number
of hosts), this one under 0.10. requests, urllib3, httpx and http.client have timeouts per read
only, so a target that drips one byte each quarter second holds them for as long as it likes; by
default all of them inflate a 1 MB gzip bomb to 500 MB, and none notices a gzip stream cut short.
`requests` stays where an operator's convenience counts more: the one-shot commands.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kvcache_exporter import __version__
from kvcache_exporter.model import Credentials, Scrape, Target
from kvcache_exporter.scrape.connection import Connection, DisconnectedError
from kvcache_exporter.scrape.credentials import authorization, tls_context
from kvcache_exporter.scrape.endpoint import Endpoint, check_address, endpoint
from kvcache_exporter.scrape.head import Head
from kvcache_exporter.scrape.http1 import ResponseReader
from kvcache_exporter.scrape.reasons import ScrapeError, acceptable, explain
from kvcache_exporter.scrape.resolver import Resolver

DEFAULT_MAX_BODY_BYTES = 8 * 1024 * 1024
SPARE_FILES = 200
"""Files that must stay free for everything but connections to targets."""

Check = Callable[[Head], None]
_NO_CREDENTIALS = Credentials()


@dataclass(slots=True)
class _Attempt:
    """How far a scrape has come, for the text of a timeout."""

    check: Check
    stage: str = "resolving the name"
    reader: ResponseReader | None = None

    def __str__(self) -> str:
        return self.reader.stage if self.reader is not None else self.stage


class Client:
    """Fetches pages within one event loop; keeps at most one idle connection per target."""

    def __init__(
        self,
        *,
        timeout_seconds: float = 5.0,
        connect_timeout_seconds: float = 2.0,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
        concurrency: int = 256,
        credentials: Mapping[str, Credentials] | None = None,
        resolver: Resolver | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`credentials` are by the name that `Target.auth` carries; `clock` stamps the scrapes.

        `concurrency` is how many targets may hang before they delay the others.
        """
        self._timeout_seconds = timeout_seconds
        self._connect_timeout_seconds = connect_timeout_seconds
        self._max_body_bytes = max_body_bytes
        self._slots = asyncio.Semaphore(concurrency)
        self._credentials = credentials or {}
        self._resolver = resolver or Resolver()
        self._clock = clock
        self._idle: dict[str, tuple[Endpoint, Connection]] = {}
        self._max_idle = max(0, _file_limit() - SPARE_FILES - concurrency)

    async def fetch(
        self, target: Target, path: str | None = None, check: Check = acceptable
    ) -> Scrape:
        """GET the target's page, or `path` (with query) on the same server.

        `check` raises ScrapeError for a response head that is not what was asked for.

        Never raises: what went wrong is the scrape's `problem`. The deadline starts when the
        scrape does, not while it waits for one of the concurrent slots.
        """
        async with self._slots:
            start, body, problem = time.monotonic(), None, None
            attempt, where = _Attempt(check), target.name
            try:
                at = endpoint(target.url, path)
                where = at.where
                async with asyncio.timeout(self._timeout_seconds):
                    body = await self._get(target, at, attempt)
            except TimeoutError:
                problem = self._timed_out(where, attempt).problem
            except Exception as error:  # a failing target is a value
                problem = explain(error, where)
            return Scrape(target.name, self._clock(), time.monotonic() - start, body, problem)

    def retain(self, names: Iterable[str]) -> None:
        """Close the idle connections of all targets but `names`."""
        for name in self._idle.keys() - set(names):
            self._idle.pop(name)[1].close()

    async def close(self) -> None:
        """Close every idle connection and let go of the resolver's threads."""
        self.retain(())
        self._resolver.close()
        await asyncio.sleep(0)  # aborted transports close their sockets in the next turn

    async def _get(self, target: Target, at: Endpoint, attempt: _Attempt) -> bytes:
        credentials = self._credentials_of(target)
        request = _request(at, authorization(credentials))
        connection = self._take_idle(target.name, at)
        if connection is not None:
            try:
                return await self._exchange(connection, request, target.name, at, attempt)
            except DisconnectedError:
                attempt.reader = None  # it had been closed meanwhile: say nothing, ask anew
        connection = await self._connect(target, at, credentials, attempt)
        return await self._exchange(connection, request, target.name, at, attempt)

    async def _exchange(
        self, connection: Connection, request: bytes, name: str, at: Endpoint, attempt: _Attempt
    ) -> bytes:
        attempt.reader = reader = ResponseReader(self._max_body_bytes, attempt.check)
        await connection.request(request, reader)
        if connection.usable and len(self._idle) < self._max_idle:
            self._idle[name] = (at, connection)
        else:
            connection.close()
        body = reader.body()
        if not body or body.isspace():
            raise ScrapeError(
                "empty", "the page is empty: check the path, or whether the server just started"
            )
        if reader.unsized and not body.endswith(b"\n"):
            raise ScrapeError(
                "truncated",
                "the page does not end in a line break, so it may be cut: does a proxy cut answers,"
                " did the engine die?",
            )
        return body

    async def _connect(
        self, target: Target, at: Endpoint, credentials: Credentials, attempt: _Attempt
    ) -> Connection:
        addresses = [at.host] if at.literal else await self._resolver.resolve(at.host)
        context = tls_context(credentials) if at.tls else None
        server_name = (credentials.server_name or at.host) if at.tls else None
        error: Exception = OSError("no address")
        for address in addresses:
            check_address(address, at.where, literal=at.literal, discovered=target.discovered)
            attempt.stage = f"connecting to {address}"
            try:
                async with asyncio.timeout(self._connect_timeout_seconds):
                    _, connection = await asyncio.get_running_loop().create_connection(
                        Connection, address, at.port, ssl=context, server_hostname=server_name
                    )
            except TimeoutError:
                error = self._timed_out(at.where, attempt, self._connect_timeout_seconds)
            except OSError as refused:
                error = refused.with_traceback(None)
            else:
                self._resolver.prefer(at.host, address)
                return connection
        try:
            raise error
        finally:
            del error  # else it holds this frame, and this frame it

    def _take_idle(self, name: str, at: Endpoint) -> Connection | None:
        before, connection = self._idle.pop(name, (at, None))
        if connection is None:
            return None
        if connection.usable and (before.where, before.tls) == (at.where, at.tls):
            return connection
        connection.close()
        return None

    def _credentials_of(self, target: Target) -> Credentials:
        if target.auth is None:
            return _NO_CREDENTIALS
        try:
            return self._credentials[target.auth]
        except KeyError:
            raise ScrapeError(
                "credentials",
                f"no credentials are configured under the name {target.auth!r}: add them or correct"
                " the name",
            ) from None

    def _timed_out(
        self, where: str, attempt: _Attempt, seconds: float | None = None
    ) -> ScrapeError:
        limit = self._timeout_seconds if seconds is None else seconds
        return ScrapeError(
            "timeout",
            f"{where} did not finish within {limit:g} s ({attempt}): is the engine hung, or does a"
            " firewall drop packets?",
        )


def _file_limit() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def _request(at: Endpoint, authorization_value: str) -> bytes:
    lines = [
        f"GET {at.path} HTTP/1.1",
        f"Host: {at.where}",
        "Accept: text/plain;version=0.0.4",
        "Accept-Encoding: identity",
        f"User-Agent: kvcache-exporter/{__version__}",
    ]
    if authorization_value:
        lines.append(f"Authorization: {authorization_value}")
    return "\r\n".join([*lines, "", ""]).encode()
