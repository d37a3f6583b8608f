"""The textbook test of software aging on six hours of 5-minute means, three times in a row."""

from benchmarks.detection.detectors import Alarms
from benchmarks.detection.detectors._tools import P99, binned, held_for, mann_kendall, over_windows
from benchmarks.detection.scenario import Trace

NAME = "Mann-Kendall, 6 h, p < .01"


def alarms(trace: Trace) -> Alarms:
    time, means = binned(trace, 300, lambda x: float(x.mean()))
    return time, held_for(over_windows(means, 72, lambda w: mann_kendall(w) > P99), 9)
