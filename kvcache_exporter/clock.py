"""Unix seconds that never jump: wall time once, monotonic time ever after."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Calls return Unix seconds that only grow, whatever NTP does to the wall clock."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._start = wall() - monotonic()

    def __call__(self) -> float:
        """Return the time now."""
        return self._start + self._monotonic()
