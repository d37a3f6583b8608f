"""Lets answers on our port go first: who computes for long holds Python's lock, and asks here.

A herd of clients that meets the end of a cycle would otherwise share the lock with it, and wait for
it anew at each system call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STEP_SECONDS = 0.001
ARRIVAL_SECONDS = 0.005
"""How long somebody who has just connected is waited for: a herd comes one after the other."""
CYCLE_SECONDS = 1.0
"""Most that a cycle waits in all, so that no crowd can stop it."""


class Turn:
    """Answers are given in one thread, ``give_way`` is called in another."""

    def __init__(
        self,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self._answering = 0
        self._expected_until = 0.0
        self._left = CYCLE_SECONDS

    def arrived(self) -> None:
        """Somebody has connected and most likely asks at once."""
        self._expected_until = self._clock() + ARRIVAL_SECONDS

    @contextmanager
    def answering(self) -> Iterator[None]:
        """While this is open, others give way."""
        self._answering += 1
        try:
            yield
        finally:
            self._answering -= 1

    def renew(self) -> None:
        """A new cycle may wait anew."""
        self._left = CYCLE_SECONDS

    def give_way(self) -> None:
        """Wait while somebody is being answered, and the cycle has time left for it."""
        while self._left > 0 and (self._answering or self._clock() < self._expected_until):
            self._left -= STEP_SECONDS
            self._sleep(STEP_SECONDS)
