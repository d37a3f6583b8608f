"""Memory of the server process that only ever grows: a leak, and not one of KV blocks."""

from __future__ import annotations

import math
from itertools import pairwise

from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication

EVERY_SECONDS = 900.0
MIN_BLOCKS = 4
WARM_UP_SECONDS = 1800.0
"""Time in which a new process may grow: caches, pools, first requests of each size."""
RISE_RATIO = 0.05
RISE_BYTES = 256 * 2**20
EVEN_SHARE = 0.25
"""Each half of the window must hold this share of the rise: a plateau is no leak."""
RISING_SHARE = 0.7


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Growth in bytes a second over the blocks of this process."""
    sizes = [b for b in history.blocks.column("resident_bytes") if not math.isnan(b)]
    warm_up = int(WARM_UP_SECONDS / settings.block_seconds)
    sizes = sizes[warm_up:] if len(sizes) >= MIN_BLOCKS + warm_up else sizes
    if len(sizes) < MIN_BLOCKS:
        return None
    rise = sizes[-1] - sizes[0]
    hours = (len(sizes) - 1) * settings.block_seconds / 3600.0
    return Indication(
        "host_memory",
        rise / (hours * 3600.0),
        _leaks(sizes, rise),
        f"resident memory of the server process went from {sizes[0] / 2**30:.2f} to "
        f"{sizes[-1] / 2**30:.2f} GiB in {hours:.1f} h ({rise / hours / 2**20:+.0f} MiB/h): host "
        "memory, not KV blocks",
        finding="host_memory_growth",
    )


def _leaks(sizes: list[float], rise: float) -> bool:
    if rise < max(RISE_BYTES, RISE_RATIO * sizes[0]):
        return False
    middle = sizes[len(sizes) // 2] - sizes[0]
    rising = sum(after > before for before, after in pairwise(sizes)) / (len(sizes) - 1)
    return EVEN_SHARE * rise <= middle <= (1 - EVEN_SHARE) * rise and rising >= RISING_SHARE
