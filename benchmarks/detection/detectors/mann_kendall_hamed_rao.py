"""Twelve hours of half-hour means, corrected for autocorrelation, with a floor on Sen's slope."""

from benchmarks.detection.detectors import Alarms
from benchmarks.detection.detectors._tools import (
    P99,
    binned,
    held_for,
    mann_kendall,
    over_windows,
    sen_slope,
)
from benchmarks.detection.scenario import Trace

NAME = "Mann-Kendall (Hamed-Rao) + Sen, 12 h"


def alarms(trace: Trace) -> Alarms:
    time, means = binned(trace, 1800, lambda x: float(x.mean()))
    trend = over_windows(
        means, 24, lambda w: mann_kendall(w, correct=True) > P99 and sen_slope(w) > 0.001
    )
    return time, held_for(trend, 3)
