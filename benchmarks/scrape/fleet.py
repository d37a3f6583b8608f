"""All scrapers at the same time on the same targets, for a while: what each of them costs."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scrape.processes import cpu_seconds, resident_bytes, running
from benchmarks.scrape.scrapers import INTERVAL_SECONDS, Scraper
from benchmarks.scrape.targets import Fleet, serving

WARM_UP_SECONDS = 3 * INTERVAL_SECONDS
MEASURED_SECONDS = 4 * INTERVAL_SECONDS


@dataclass(frozen=True, slots=True)
class Cost:
    """What one scraper cost on one fleet, all of it: scraping, keeping, judging, serving."""

    scraper: str
    targets: int
    scrapes: int
    cpu_seconds: float
    resident_bytes: int
    bytes_asked: int

    @property
    def cpu_ms_per_scrape(self) -> float:
        return self.cpu_seconds / max(1, self.scrapes) * 1e3

    @property
    def cores(self) -> float:
        return self.cpu_seconds / MEASURED_SECONDS


def measure(scrapers: Sequence[Scraper], targets: int, whole: bytes, cut: bytes) -> list[Cost]:
    """Run every scraper on `targets` targets at once; only the time after a warm-up counts."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fleet = stack.enter_context(serving(targets, whole, cut))
        sink = [sys.executable, "-m", "benchmarks.scrape.sink"]
        stack.enter_context(running(sink, folder / "sink.log"))
        pids = []
        for number, one in enumerate(scrapers):
            own = folder / str(number)
            own.mkdir()
            command = one.command(own, fleet.addresses)
            process = stack.enter_context(running(command, own / "log", one.environment))
            pids.append(process.pid)
        time.sleep(WARM_UP_SECONDS)
        return _measure(scrapers, pids, fleet)


def _measure(scrapers: Sequence[Scraper], pids: Sequence[int], fleet: Fleet) -> list[Cost]:
    def look() -> list[tuple[int, int, float]]:
        asked = [fleet.asked(one.agent) for one in scrapers]
        return [
            (one.scrapes, one.bytes, cpu_seconds(pid)) for one, pid in zip(asked, pids, strict=True)
        ]

    before = look()
    time.sleep(MEASURED_SECONDS)
    after = look()
    return [
        Cost(
            scraper=one.name,
            targets=len(fleet.addresses),
            scrapes=now[0] - then[0],
            cpu_seconds=now[2] - then[2],
            resident_bytes=resident_bytes(pid),
            bytes_asked=now[1] - then[1],
        )
        for one, pid, then, now in zip(scrapers, pids, before, after, strict=True)
    ]
