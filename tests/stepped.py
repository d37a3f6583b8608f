"""An auditor stepped by hand, on a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kvcache_exporter.vllm_plugin.auditor import Auditor


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def step(auditor: Auditor, clock: Clock, seconds: float = 5.0) -> dict[str, Any]:
    """Let time pass, make a step and wait until its sample is counted."""
    samples = auditor.report()["samples"]
    clock.now += seconds
    auditor.step()
    eventually(lambda: auditor.report()["samples"] > samples)
    return auditor.report()
