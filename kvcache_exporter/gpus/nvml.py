"""GPU memory and processes from NVML, asked in a child process that may hang without harm."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from kvcache_exporter.gpus import Fetch, Source
from kvcache_exporter.gpus import _nvml_words as words
from kvcache_exporter.gpus._nvml_process import NvmlProcess
from kvcache_exporter.gpus._nvml_report import counted, error_codes, read_report, without_values
from kvcache_exporter.model import GpuReading, GpuSourceReading, Problem

FIRST_RETRY_SECONDS = 5.0
LAST_RETRY_SECONDS = 300.0
ABANDON_AFTER_SECONDS = 30.0
"""A call that is late for this long hangs. nvmlInit alone takes seconds where the driver has to
wake several GPUs (persistence mode off), so a late answer is still welcome before."""
KEEP_VALUES_SECONDS = 60.0
"""How long the last good values stand in for an answer; after that only the GPUs' names do."""
MAX_ABANDONED = 2
CLOSE_SECONDS = 0.5


def sources(_fetch: Fetch, *, enabled: bool = True, deadline_seconds: float = 2.0) -> list[Source]:
    """One source for the GPUs of this host."""
    return [NvmlSource(deadline_seconds)] if enabled else []


class NvmlSource:
    """Every GPU of this host; while NVML hangs or fails, its last good answer for a while.

    A reading that is not ``up`` holds GPUs as of its own ``time``.
    """

    name = "nvml"

    def __init__(self, deadline_seconds: float = 2.0) -> None:
        self._deadline_seconds = deadline_seconds
        self._process: NvmlProcess | None = None
        self._left: list[NvmlProcess] = []
        self._retry_at = float("-inf")
        self._retry_seconds = FIRST_RETRY_SECONDS
        self._last = GpuSourceReading(self.name, 0.0, up=False, problem=words.NOT_TRIED)
        self._known: dict[str, GpuReading] = {}

    @property
    def pids(self) -> list[int]:
        """Every child process that still exists."""
        children = [*self._left, *([self._process] if self._process else [])]
        return [child.pid for child in children if child.alive]

    def read(self, now: float) -> GpuSourceReading:
        """Ask NVML; answer within the deadline whatever the driver does."""
        self._left = [child for child in self._left if child.alive]
        if self._process is None:
            if len(self._left) >= MAX_ABANDONED:
                return self._down(now, words.given_up(len(self._left)))
            if now < self._retry_at:
                return self._down(now, self._last.problem or words.NOT_TRIED)
            try:
                self._process = NvmlProcess()
            except OSError as error:  # out of memory or of processes
                self._back_off(now)
                return self._down(now, words.not_started(error))
        return self._read_from(self._process, now)

    def close(self) -> None:
        """Leave every child; one that the kernel holds is not waited for."""
        children = [*self._left, *([self._process] if self._process else [])]
        for child in children:
            child.leave_and_reap(CLOSE_SECONDS / len(children))
        self._process, self._left = None, [child for child in children if child.alive]

    def _read_from(self, child: NvmlProcess, now: float) -> GpuSourceReading:
        late = child.asked_at is not None
        if not late:
            child.ask(now)
        try:
            report = child.answer(0.0 if late else self._deadline_seconds)
        except (EOFError, ValueError):
            self._drop(child, now)
            return self._down(now, words.DIED)
        if report is None:
            return self._late(child, now)
        return self._answered(child, report, now)

    def _late(self, child: NvmlProcess, now: float) -> GpuSourceReading:
        asked_at = now if child.asked_at is None else child.asked_at
        if now - asked_at >= ABANDON_AFTER_SECONDS:
            self._drop(child, now)
        return self._down(now, words.hung(max(self._deadline_seconds, now - asked_at)))

    def _answered(self, child: NvmlProcess, report: dict[str, Any], now: float) -> GpuSourceReading:
        if "error" in report:
            self._drop(child, now)
            return self._down(now, words.problem(report["error"]), keep_values=False)
        if not error_codes(report) & words.FRESH_PROCESS_HELPS:
            self._retry_seconds = FIRST_RETRY_SECONDS
        elif now >= self._retry_at and len(self._left) < MAX_ABANDONED:
            self._drop(child, now)
            with suppress(OSError):
                self._process = NvmlProcess()  # the healthy GPUs must not miss a cycle
        self._last = counted(read_report(report, now), self._known.values())
        self._known = {gpu.uuid: gpu for gpu in self._last.gpus if gpu.parent_uuid is None}
        return self._last

    def _drop(self, child: NvmlProcess, now: float) -> None:
        child.leave()
        self._left.append(child)
        self._process = None
        self._back_off(now)

    def _back_off(self, now: float) -> None:
        self._retry_at = now + self._retry_seconds
        self._retry_seconds = min(2 * self._retry_seconds, LAST_RETRY_SECONDS)

    def _down(self, now: float, problem: Problem, keep_values: bool = True) -> GpuSourceReading:
        """Answer with what was last known, and why it is not news."""
        gpus = self._last.gpus
        if not keep_values or now - self._last.time > KEEP_VALUES_SECONDS:
            gpus = tuple(without_values(gpu, problem) for gpu in gpus)
        time = self._last.time if self._last.expected else now
        seen = 0 if self._last.expected else None
        self._last = replace(self._last, time=time, up=False, gpus=gpus, problem=problem, seen=seen)
        return self._last
