"""Notices a GPU source that repeats itself: a DCGM exporter whose engine has died behind it.

Such a page stays bit-identical for ever while its exporter answers and calls itself healthy
(NVIDIA/gpu-monitoring-tools#188).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcache_exporter.model import GpuReading, GpuSourceReading, Problem

FROZEN_SECONDS = 90.0
"""Three times the 30 s in which dcgm-exporter collects by default."""
FROZEN_READS = 6


@dataclass(frozen=True, slots=True)
class _Same:
    fingerprint: int | None
    since: float
    reads: int = 0


class FrozenWatch:
    """Watches one source; ``observe`` turns its reading into one that is not up once it froze."""

    def __init__(self) -> None:
        self._same = _Same(None, 0.0)

    def observe(self, reading: GpuSourceReading, *, moved: bool) -> GpuSourceReading:
        """Judge a reading; *moved*: since the last one an engine or another source showed work.

        Reads without work do not count, for an idle GPU may well repeat itself.
        """
        same = self._same
        if reading.fingerprint is None or reading.fingerprint != same.fingerprint:
            self._same = _Same(reading.fingerprint, reading.time)
            return reading
        self._same = same = replace(same, reads=same.reads + moved)
        if same.reads < FROZEN_READS or reading.time - same.since < FROZEN_SECONDS:
            return reading
        gpus = tuple(_without_values(gpu) for gpu in reading.gpus)
        problem = _problem(reading, same.since)
        return replace(reading, up=False, gpus=gpus, seen=0, problem=problem)


def _without_values(gpu: GpuReading) -> GpuReading:
    return replace(
        gpu, total_bytes=None, used_bytes=None, reserved_bytes=None, free_bytes=None, xid=None
    )


def _problem(reading: GpuSourceReading, since: float) -> Problem:
    return Problem(
        f"{reading.source}_frozen",
        f"every value of {reading.source} has been the same to the bit for "
        f"{reading.time - since:.0f} s while the GPUs work: its values are not used; restart "
        "nv-hostengine and then the dcgm-exporter",
    )
