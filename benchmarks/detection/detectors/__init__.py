"""Detectors side by side: each file has ``NAME`` and ``alarms(trace)``; its file registers it.

``alarms`` returns (times, on): parallel arrays, on true while the detector holds an alarm.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.scenario import Trace
from benchmarks.detection.workload import Floats

Alarms: TypeAlias = tuple[Floats, NDArray[np.bool_]]


class Detector(NamedTuple):
    """A detector as found."""

    key: str
    name: str
    alarms: Callable[[Trace], Alarms]


def all_detectors() -> dict[str, Detector]:
    """By file name, in alphabetical order."""
    keys = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    modules = {key: import_module(f"{__name__}.{key}") for key in keys}
    return {key: Detector(key, module.NAME, module.alarms) for key, module in modules.items()}
