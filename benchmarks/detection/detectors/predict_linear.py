"""``predict_linear(usage[1h], 4h) > 1`` for half an hour, the disk-full rule."""

from benchmarks.detection.detectors import Alarms
from benchmarks.detection.detectors._tools import held_for, regression
from benchmarks.detection.scenario import Trace
from benchmarks.detection.workload import HOUR

NAME = "predict_linear(1h, 4h) > 1 for 30 m"


def alarms(trace: Trace) -> Alarms:
    time, slope, level = regression(trace, HOUR)
    return time, held_for(level + 4 * HOUR * slope > 1, 30)
