"""``deriv(usage[6h])`` above half a per cent an hour, for an hour."""

from benchmarks.detection.detectors import Alarms
from benchmarks.detection.detectors._tools import held_for, regression
from benchmarks.detection.scenario import Trace
from benchmarks.detection.workload import HOUR

NAME = "deriv(6h) > 0.5 %/h for 1 h"


def alarms(trace: Trace) -> Alarms:
    time, slope, _ = regression(trace, 6 * HOUR)
    return time, held_for(slope * HOUR > 0.005, 60)
