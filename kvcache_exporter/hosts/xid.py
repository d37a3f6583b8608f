"""Xid errors by their change: the driver's code stays for ever, so only a new one is news."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.model import GpuReading, Problem

TOLD_SECONDS = 900.0
"""How long a new code is reported; long enough for an alert, short enough to clear."""
BY_THE_APPLICATION = {13, 31, 43, 45}
"""Codes that NVIDIA's Xid catalogue puts down to the program on the GPU, not to the GPU."""


class XidWatch:
    """Remembers the last code of each GPU."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._since: dict[str, float] = {}

    def observe(self, gpus: Iterable[GpuReading], now: float) -> tuple[Problem, ...]:
        """Return a problem for each GPU with a new code; the first code of a GPU may be old."""
        problems = []
        for gpu in gpus:
            if gpu.xid is None:
                continue
            if self._codes.setdefault(gpu.uuid, gpu.xid) != gpu.xid:
                self._codes[gpu.uuid], self._since[gpu.uuid] = gpu.xid, now
            since = self._since.get(gpu.uuid)
            if gpu.xid and since is not None and now - since < TOLD_SECONDS:
                problems.append(_problem(gpu.uuid, gpu.xid))
        return tuple(problems)


def _problem(uuid: str, code: int) -> Problem:
    advice = (
        "look at the program on the GPU; the GPU itself needs nothing"
        if code in BY_THE_APPLICATION
        else "look it up in NVIDIA's Xid catalogue and in `dmesg`; drain the node if it repeats"
    )
    return Problem("gpu_xid", f"{uuid} reported Xid {code}: {advice}")
