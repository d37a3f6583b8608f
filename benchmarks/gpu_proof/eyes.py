"""What the exporter sees of the GPUs, and a list of what was expected of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvcache_exporter.gpus.nvml import NvmlSource
from kvcache_exporter.hosts.gpu_view import gpu_pids, one_view
from kvcache_exporter.hosts.processes import HostProcesses, HostReader
from kvcache_exporter.model import GpuReading, GpuSourceReading

STEP_SECONDS = 60.0
PORT = 18765


class Proof:
    """Collects what was seen and whether it was as expected."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self.wrong: list[str] = []

    def expect(self, what: str, holds: bool) -> None:
        self.seen.setdefault("expectations", {})[what] = holds
        if not holds:
            self.wrong.append(what)


class Eyes:
    """The exporter's own view of the GPUs: source, process tree, merge."""

    def __init__(self) -> None:
        self.source = NvmlSource()
        self.reader = HostReader(Path("/proc"))

    def look(self) -> GpuSourceReading:
        return self.source.read(time.time())

    def gpu(self, uuid: str) -> GpuReading:
        return next(gpu for gpu in self.look().gpus if gpu.uuid == uuid)

    def host(self) -> tuple[tuple[GpuReading, ...], HostProcesses]:
        gpus = one_view([self.look()]).gpus
        url = {"proof": f"http://127.0.0.1:{PORT}/metrics"}
        return gpus, self.reader.read(gpu_pids(gpus), url, time.time())


def until(condition: Callable[[], bool]) -> float | None:
    """Seconds until *condition* held; None when it did not within a minute."""
    start = time.monotonic()
    while time.monotonic() - start < STEP_SECONDS:
        if condition():
            return round(time.monotonic() - start, 3)
        time.sleep(0.05)
    return None


def picture(gpu: GpuReading) -> dict[str, Any]:
    processes = None
    if gpu.processes is not None:
        processes = [[process.pid, process.used_bytes] for process in gpu.processes]
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "model": gpu.model,
        "driver": gpu.driver_version,
        "total": gpu.total_bytes,
        "used": gpu.used_bytes,
        "reserved": gpu.reserved_bytes,
        "free": gpu.free_bytes,
        "processes": processes,
        "problem": gpu.problem.text if gpu.problem else None,
    }
