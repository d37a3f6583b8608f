"""The pool has another size than before: ratios and floors from before no longer compare."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication

EVERY_SECONDS = 30.0
SHOWN_SECONDS = 900.0


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Blocks of the pool now."""
    rows = zip(*map(history.cuts.column, ("time", "pool_changed")), strict=True)
    changes = [time for time, changed in rows if changed]
    if not changes or history.known is None or history.known.pool_blocks is None:
        return None
    ago = history.time - changes[-1]
    return Indication(
        "capacity_change",
        float(history.known.pool_blocks),
        ago <= SHOWN_SECONDS,
        f"the pool has {history.known.pool_blocks} blocks since {ago / 60:.0f} min ago, another "
        "size than before",
        finding="capacity_change",
    )
