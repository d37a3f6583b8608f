"""The last hours of one engine as a few numbers, for charts that people look at."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

STEP_SECONDS = 300.0
POINTS = 96
"""Eight hours in 2.3 KB an engine."""
_POINT = struct.Struct("<dffff")
_NONE = float("nan")


class Point(NamedTuple):
    """One moment; None = not known then."""

    time: float
    used_blocks: float | None
    idle_floor_blocks: float | None
    orphaned_blocks: float | None
    gpu_used_bytes: float | None


@dataclass(frozen=True, slots=True)
class Trace:
    """Points at least ``STEP_SECONDS`` apart, packed; never changed, only replaced."""

    packed: bytes = b""

    def add(self, point: Point) -> Trace:
        """Return the trace with *point*, or this one where the last point is too recent."""
        if self.packed and point.time - self.last_time < STEP_SECONDS:
            return self
        values = (_NONE if value is None else value for value in point)
        kept = self.packed[-(POINTS - 1) * _POINT.size :]
        return Trace(kept + _POINT.pack(*values))

    @property
    def last_time(self) -> float:
        """Time of the newest point."""
        time: float = _POINT.unpack_from(self.packed, len(self.packed) - _POINT.size)[0]
        return time

    def points(self) -> Iterator[Point]:
        """Yield the points, oldest first."""
        for time, *values in _POINT.iter_unpack(self.packed):
            yield Point(time, *(None if value != value else value for value in values))
