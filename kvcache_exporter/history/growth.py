"""Memory that grows for good, told from memory that is warming up: one settles, one keeps its pace.

vLLM takes its pool at the start, so what grows afterwards lies outside it. The first requests load
kernels and workspaces (0.6 % of an H200's memory, measured), and a caching allocator adds a little
whenever a larger batch comes along, ever more seldom: such a rise slows down when the time watched
doubles, a leak's does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from kvcache_exporter.history.table import NAN, Table
from kvcache_exporter.model import GpuReading, Observation

SLOT_SECONDS = 120.0
SLOTS = 720
"""A day of work. An idle engine allocates nothing, so idle time counts only where memory rose."""
WARM_UP_SLOTS = 15
WINDOWS = (15, 22, 30, 42, 60, 85, 120, 170, 240, 340, 480, 720)
"""Half an hour of work to a day: a fast leak shows in a short window, a slow one in a long one."""
FULL_WINDOW_SECONDS = 14400.0
MAX_CAUTION = 2.0
"""A window shorter than four hours needs a larger rise, by the root of its length, at most twice:
a short one sees less of what an allocator does by chance."""
PACE = 1.7
"""Rise in the last half of a window against that in the quarter before: 2 for a steady leak, 1 for
one that goes with the logarithm of time, 0 for one that has settled."""
SHARE_OF_A_THIRD = 0.1


class Growth(NamedTuple):
    """A rise that keeps its pace."""

    bytes: float
    seconds: float


class GrowthWatch:
    """The floor of one memory size, a value a slot of work."""

    def __init__(self) -> None:
        self.floors = Table(("time", "bytes"), SLOTS, "d")
        self.settled_bytes = NAN
        """Floor at the end of warm-up."""
        self._slot = NAN
        self._before = self._floor = math.inf
        self._worked = False

    def add(self, time: float, size: float, worked: bool) -> None:
        """Take in a size in bytes; *worked*: the engine did something since the last one."""
        slot = time // SLOT_SECONDS
        if slot != self._slot:
            self._close()
            self._slot = slot
        self._floor = min(self._floor, size)
        self._worked |= worked

    @property
    def risen_bytes(self) -> float | None:
        """Rise of the floor since warm-up; None during it."""
        return (
            None
            if math.isnan(self.settled_bytes)
            else self.floors.last("bytes") - self.settled_bytes
        )

    def _close(self) -> None:
        if self._worked or self._before < self._floor < math.inf:
            self.floors.append((self._slot * SLOT_SECONDS, self._floor))
            if self.floors.total == WARM_UP_SLOTS:
                self.settled_bytes = self._floor
        self._before, self._floor, self._worked = self._floor, math.inf, False


class MemoryLog:
    """Growth of each GPU's memory as far as it is one engine's."""

    def __init__(self) -> None:
        self.gpus: dict[tuple[str, str, bool], GrowthWatch] = {}
        """By UUID, source, and whether the size is that of the engine's own processes."""
        self.totals: dict[str, int] = {}
        self.latest: tuple[GpuReading, ...] = ()

    def add(self, observation: Observation, worked: bool) -> None:
        """Take in one observation that has a reading."""
        self.latest = observation.gpus
        watches = {}
        for gpu in observation.gpus:
            size, own = engine_size(gpu)
            if size is not None:
                key = (gpu.uuid, gpu.source, own)
                watches[key] = self.gpus.get(key) or GrowthWatch()
                watches[key].add(observation.time, size, worked)
                self.totals[gpu.uuid] = gpu.total_bytes or 0
        self.gpus = watches  # two sources, or two ways to count, never continue each other


def engine_size(gpu: GpuReading) -> tuple[int | None, bool]:
    """Memory of the processes on a GPU where all are known, else all that is used on it."""
    sizes = [process.used_bytes for process in gpu.processes or ()]
    if sizes and None not in sizes:
        return sum(size for size in sizes if size is not None), True
    return gpu.used_bytes, False


def own_bytes(gpus: Iterable[GpuReading]) -> tuple[tuple[str, int], ...]:
    """(uuid, bytes) of the processes on each GPU, where the driver tells them all."""
    sizes = ((gpu.uuid, *engine_size(gpu)) for gpu in gpus)
    return tuple((uuid, size) for uuid, size, own in sizes if own and size is not None)


def growth(times: Sequence[float], floors: Sequence[float], least_bytes: float) -> Growth | None:
    """Return the rise of *floors* that keeps its pace; None when none does. *times* in seconds."""
    for window in WINDOWS:
        if window > len(floors):
            return None
        seconds = times[-1] - times[-window]
        caution = min(MAX_CAUTION, max(1.0, math.sqrt(FULL_WINDOW_SECONDS / seconds)))
        if (risen := _kept_pace(floors, window)) is not None and risen >= caution * least_bytes:
            return Growth(risen, times[-1] - times[-window + window // 2])
    return None


def _kept_pace(floors: Sequence[float], window: int) -> float | None:
    """Rise in the last half of *window* above everything before it, if it is a steady one."""
    half = len(floors) - (window - window // 2)
    late, earlier = floors[half:], floors[:half]
    risen = late[-1] - late[0]
    third = (len(late) - 1) / 3
    marks = [late[round(step * third)] for step in range(4)]
    steady = all(b - a >= SHARE_OF_A_THIRD * risen for a, b in pairwise(marks))
    step = max(b - a for a, b in pairwise(late))  # an allocator's: it may fall on either side
    in_pace = risen >= PACE * (late[0] - floors[half - window // 4] - step)
    above = late[-1] - max(earlier)  # what came back before will come back again
    return above if risen > 0 and steady and in_pace else None
