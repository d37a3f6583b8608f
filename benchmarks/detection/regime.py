"""What kind of leak a trace has, told from its truth: how fast, and whether the engine rests."""

from __future__ import annotations

import numpy as np

from benchmarks.detection.scenario import Trace
from benchmarks.detection.workload import HOUR

IDLE_SHARE = 0.005
STEP_SHARE = 0.8
"""A leak is a step when this much of it is lost within two hours of its onset."""
REGIMES = (
    "growing >= 1 %/h",
    "growing 0.25 to 1 %/h",
    "growing < 0.25 %/h, idles",
    "growing < 0.25 %/h, never idle",
    "step, idles",
    "step, never idle",
)


def idle_share(trace: Trace) -> float:
    """Share of successful scrapes with nothing running and nothing waiting."""
    up = trace["up"] == 1
    return float(np.mean((trace["running"][up] == 0) & (trace["waiting"][up] == 0)))


def leak_rate(trace: Trace) -> float:
    """Per cent of the pool an hour, over the first twelve hours after the onset."""
    onset = trace.onset
    if onset is None:
        return 0.0
    time, lost, pool = trace["time"], trace["lost"], float(np.nanmax(trace["pool"]))
    after = (time >= onset) & (time <= onset + 12 * HOUR)
    peak = int(np.argmax(lost[after]))
    hours = max(1.0, float(time[after][peak] - onset) / HOUR)
    return float(lost[after][peak] / pool * 100 / hours)


def regime(trace: Trace) -> str:
    """One of ``REGIMES``, or "" for a healthy trace."""
    onset = trace.onset
    if onset is None:
        return ""
    idles = "idles" if idle_share(trace) >= IDLE_SHARE else "never idle"
    time, lost = trace["time"], trace["lost"]
    early = lost[(time >= onset) & (time <= onset + 2 * HOUR)].max()
    rest = time[-1] - onset > 6 * HOUR
    if rest and early >= STEP_SHARE * lost[time >= onset].max():
        return f"step, {idles}"
    rate = leak_rate(trace)
    if rate >= 1:
        return "growing >= 1 %/h"
    return "growing 0.25 to 1 %/h" if rate >= 0.25 else f"growing < 0.25 %/h, {idles}"
