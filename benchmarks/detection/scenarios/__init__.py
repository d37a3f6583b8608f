"""Named scenarios; each file has ``SCENARIOS``, a list, and is found by being here."""

from benchmarks.detection.scenario import Engine
from benchmarks.detection.workload import HOUR

BUSY = Engine(tokens_per_second=30.0, slowdown=120.0)
"""A bigger model: slower, so more requests run at once."""
POOL = BUSY.pool_blocks


def percent(rate: float, pool: int = POOL) -> float:
    """Blocks an hour (or blocks) from per cent of the pool."""
    return rate / 100 * pool


__all__ = ["BUSY", "HOUR", "POOL", "percent"]
