"""Sends requests from a few threads, within every bound that the operator set."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import requests

from kvcache_exporter.soak.profiles import draw
from kvcache_exporter.soak.request import Outcome, send

MAX_RETRIES = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a rehearsal may do at most."""

    duration_seconds: float
    requests: int
    concurrency: int
    rate: float | None = None
    """Requests a second over all clients; None = as fast as they are answered."""
    timeout_seconds: float = 300.0


class Driver:
    """Drives one server; iterate over ``outcomes`` and call ``stop`` to end early."""

    def __init__(
        self, url: str, model: str, profiles: tuple[str, ...], bounds: Bounds, scale: float = 1.0
    ) -> None:
        self._url, self._model, self._profiles = url, model, profiles
        self._bounds, self._scale = bounds, scale
        self._random = Random(1)  # noqa: S311 - the same load each time, so that runs compare
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._sent = 0
        self._done: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()

    def outcomes(self) -> Iterator[Outcome]:
        """Start the clients and yield what happens until all of them have ended."""
        self._start = time.monotonic()
        clients = [
            threading.Thread(target=self._client, daemon=True)
            for _ in range(self._bounds.concurrency)
        ]
        for client in clients:
            client.start()
        running = len(clients)
        while running:
            outcome = self._done.get()
            if outcome is None:
                running -= 1
            else:
                yield outcome

    def stop(self) -> None:
        """Let running requests end and send no more."""
        self._stop.set()

    def _client(self) -> None:
        with requests.Session() as session:
            while (number := self._next()) is not None:
                self._done.put(self._one(session, number))
        self._done.put(None)

    def _next(self) -> int | None:
        """Return the number of the next request when its time has come; None = no more."""
        with self._lock:
            if self._stop.is_set() or self._sent >= self._bounds.requests:
                return None
            number, self._sent = self._sent, self._sent + 1
        rate, end = self._bounds.rate, self._bounds.duration_seconds
        due = self._start + (number / rate if rate else 0.0)
        if due - self._start > end or time.monotonic() - self._start > end:
            return None
        self._stop.wait(max(0.0, due - time.monotonic()))
        return None if self._stop.is_set() else number

    def _one(self, session: requests.Session, number: int) -> Outcome:
        with self._lock:
            profile, ask = draw(self._profiles, self._random, self._scale)
        for retries in range(MAX_RETRIES + 1):
            outcome = send(
                session, self._url, self._model, ask, number, profile, self._bounds.timeout_seconds
            )
            if outcome.ok or self._stop.is_set() or not _may_retry(outcome):
                break
            self._stop.wait(2.0**retries)
        return replace(outcome, retries=retries)


def _may_retry(outcome: Outcome) -> bool:
    """A server that refuses for good is not asked again."""
    return outcome.status is None or outcome.status in (429, 500, 502, 503, 504)
