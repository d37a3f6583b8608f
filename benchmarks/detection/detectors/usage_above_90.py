"""The rule every playbook has: usage above 90 % for ten minutes."""

from benchmarks.detection.detectors import Alarms
from benchmarks.detection.detectors._tools import held_for, usage
from benchmarks.detection.scenario import Trace

NAME = "usage > 0.9 for 10 m"


def alarms(trace: Trace) -> Alarms:
    time, ratio = usage(trace)
    return time, held_for(ratio > 0.9, 40)
