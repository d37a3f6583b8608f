"""A new process answers: everything it had lost is free again, and nothing before it compares."""

from __future__ import annotations

from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication

EVERY_SECONDS = 30.0
SHOWN_SECONDS = 900.0


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Restarts among the remembered cuts of the history."""
    cuts = history.cuts
    rows = zip(*map(cuts.column, ("time", "restart", "counter_fell")), strict=True)
    restarts = [(time, announced) for time, announced, fell in rows if announced or fell]
    if not restarts:
        return None
    time, announced = restarts[-1]
    ago = history.time - time
    sign = "its start time changed" if announced else "its counters fell back"
    return Indication(
        "restart",
        float(len(restarts)),
        ago <= SHOWN_SECONDS,
        f"the engine was restarted {ago / 60:.0f} min ago ({sign}); restarts remembered: "
        f"{len(restarts)}",
        finding="restart",
    )
