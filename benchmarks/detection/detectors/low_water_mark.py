"""Minimum of the last day against the minimum of the day six hours before: + 1 % for an hour."""

import numpy as np

from benchmarks.detection.detectors import Alarms
from benchmarks.detection.detectors._tools import binned, held_for, over_windows
from benchmarks.detection.scenario import Trace

NAME = "24 h low-water mark + 1 % in 6 h"


def alarms(trace: Trace) -> Alarms:
    time, low = binned(trace, 900, lambda x: float(x.min()))
    rising = over_windows(low, 120, lambda w: bool(np.nanmin(w[24:]) - np.nanmin(w[:96]) > 0.01))
    return time, held_for(rising, 4)
