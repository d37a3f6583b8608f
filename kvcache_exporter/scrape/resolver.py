"""Names to addresses, so that one dead name server stalls neither other targets nor the exit.

`loop.getaddrinfo` shares the default executor: on two cores six hung look-ups block every other
one, and its threads hold up the exit of the process until they return. These threads are few, our
own, and daemons.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from kvcache_exporter.scrape.reasons import ScrapeError

Lookup = Callable[[str], list[str]]
_Job = tuple[str, asyncio.AbstractEventLoop]

MAX_NAMES = 10_000


def system_lookup(host: str) -> list[str]:
    """Ask the system's resolver; blocks for as long as that likes."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Resolver:
    """Answers from a cache; keeps the last good addresses of a name for as long as DNS fails."""

    def __init__(
        self,
        lookup: Lookup = system_lookup,
        *,
        ttl_seconds: float = 30.0,
        wait_seconds: float = 2.0,
        threads: int = 4,
    ) -> None:
        self._lookup = lookup
        self._ttl_seconds = ttl_seconds
        self._wait_seconds = wait_seconds
        self._threads = threads
        self._jobs: SimpleQueue[_Job | None] | None = None
        self._known: dict[str, tuple[float, list[str]]] = {}
        self._asked: dict[str, asyncio.Future[list[str]]] = {}

    async def resolve(self, host: str) -> list[str]:
        """Return the addresses of `host`, at least one, or raise `ScrapeError` or `gaierror`."""
        expires, addresses = self._known.get(host, (0.0, []))
        if time.monotonic() < expires:
            return addresses
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await asyncio.shield(self._ask(host))
        except OSError as error:  # gaierror and TimeoutError are both OSErrors
            if addresses:
                return addresses
            if isinstance(error, TimeoutError):
                raise ScrapeError(
                    "dns",
                    f"the name {host} did not resolve within {self._wait_seconds:g} s: does the"
                    " name server answer?",
                ) from error
            raise

    def prefer(self, host: str, address: str) -> None:
        """Try `address` first next time: it is the one that answered."""
        if host in self._known:
            expires, addresses = self._known[host]
            self._known[host] = (expires, sorted(addresses, key=address.__ne__))

    def close(self) -> None:
        """Let the threads end once their look-ups return; waits for none."""
        if self._jobs is not None:
            for _ in range(self._threads):
                self._jobs.put(None)
            self._jobs = None

    def _ask(self, host: str) -> asyncio.Future[list[str]]:
        if host not in self._asked:
            loop = asyncio.get_running_loop()
            self._asked[host] = loop.create_future()
            self._queue().put((host, loop))
        return self._asked[host]

    def _queue(self) -> SimpleQueue[_Job | None]:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            for number in range(self._threads):
                threading.Thread(
                    target=self._work, args=(self._jobs,), name=f"resolver-{number}", daemon=True
                ).start()
        return self._jobs

    def _work(self, jobs: SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            host, loop = job
            answer: list[str] | Exception
            try:
                answer = self._lookup(host)
            except Exception as error:  # a look-up may not kill its thread
                answer = error
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._arrived, host, answer)

    def _arrived(self, host: str, answer: list[str] | Exception) -> None:
        future = self._asked.pop(host)
        if isinstance(answer, Exception):
            future.set_exception(answer)
            future.exception()  # seen, even if every scrape has given up waiting
            return
        if len(self._known) >= MAX_NAMES:
            self._known.pop(next(iter(self._known)))
        self._known[host] = (time.monotonic() + self._ttl_seconds, answer)
        future.set_result(answer)
