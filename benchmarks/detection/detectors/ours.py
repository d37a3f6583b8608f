"""This project's judge: the alarm is an established leak, proven or a trend (the ticket path)."""

import numpy as np

from benchmarks.detection.detectors import Alarms
from benchmarks.detection.feed import observations
from benchmarks.detection.scenario import Trace
from kvcache_exporter.judge import Judge

NAME = "kvcache-exporter"


def alarms(trace: Trace) -> Alarms:
    judge = Judge()
    on = [judge.observe(seen).leak_active for seen in observations(trace)]
    return trace["time"], np.array(on, dtype=np.bool_)
