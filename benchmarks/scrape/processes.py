"""CPU and memory of a process with its children, read from /proc."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

STOP_SECONDS = 15


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command for as long as the block lasts."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            list(command), stdout=file, stderr=file, env={**os.environ, **(environment or {})}
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found, at = [pid], 0
    while at < len(found):
        for task in Path(f"/proc/{found[at]}/task").glob("*/children"):
            with suppress(OSError):
                found += [int(child) for child in task.read_text().split()]
        at += 1
    return found


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process and its descendants, to the nanosecond."""
    return sum(map(own_cpu_seconds, family(pid)))


def own_cpu_seconds(pid: int) -> float:
    """Return user and system time of the threads of one process; ended ones are not counted."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(path.read_text().split()[0])
    return total / 1e9


def resident_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants; what they share counts once each."""
    pages = 0
    for one in family(pid):
        with suppress(OSError):
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
