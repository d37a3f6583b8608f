"""What must not grow in an exporter that runs for days, and whether it did."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.scrape.processes import resident_bytes
from benchmarks.scrape.report import table


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a process; `objects` only where it is our own."""

    hours: float
    resident_mib: float
    files: float
    threads: float
    series: float
    objects: float = 0.0


LIMITS = {
    "resident_mib": (0.05, 2.0),
    "files": (0.0, 2.0),
    "threads": (0.0, 1.0),
    "series": (0.05, 0.0),
    "objects": (0.05, 0.0),
}
"""What may be more at the end, each as a share of what there was and in its own unit: the larger
one counts. A leak of 1 KiB a scrape would be 300 MiB and more."""
WARM_UP = 1 / 3
"""Of 72 hours the first 24, in which the histories fill."""


def own(hours: float, series: int) -> Look:
    """Look at this process, after a collection."""
    gc.collect()
    look = of_process(os.getpid(), hours, series)
    return Look(
        hours,
        look.resident_mib,
        look.files,
        threading.active_count(),
        series,
        len(gc.get_objects()),
    )


def of_process(pid: int, hours: float, series: int) -> Look:
    """Look at a process from outside."""
    proc = Path(f"/proc/{pid}")
    files = len(list((proc / "fd").iterdir()))
    threads = len(list((proc / "task").iterdir()))
    return Look(hours, resident_bytes(pid) / 2**20, files, threads, series)


def growths(looks: Sequence[Look]) -> dict[str, tuple[float, float, bool]]:
    """Return median after warm-up, median at the end, and whether that is growth, by measure."""
    settled = looks[int(len(looks) * WARM_UP) :]
    third = max(1, len(settled) // 3)
    found = {}
    for name, (share, more) in LIMITS.items():
        values = [float(getattr(look, name)) for look in settled]
        before, after = median(values[:third]), median(values[-third:])
        found[name] = before, after, after - before > max(share * before, more)
    return found


def report(looks: Sequence[Look]) -> str:
    """Say how each measure did, and the verdict."""
    found = growths(looks)
    rows = [
        (
            name.replace("_mib", " MiB"),
            *(f"{value:,.1f}" for value in (before, after, after - before)),
            "GROWS" if grew else "flat",
        )
        for name, (before, after, grew) in found.items()
        if before or after
    ]
    return table(("measure", "after warm-up", "at the end", "more", ""), rows)


def leaks(looks: Sequence[Look]) -> bool:
    """Whether anything grew."""
    return any(grew for _, _, grew in growths(looks).values())
