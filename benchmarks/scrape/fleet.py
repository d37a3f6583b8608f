"""One scraper after the other on the same targets, for a while: what each of them costs."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scrape.processes import cpu_seconds, resident_bytes, running
from benchmarks.scrape.scrapers import INTERVAL_SECONDS, Scraper
from benchmarks.scrape.targets import serving

WARM_UP_SECONDS = 2 * INTERVAL_SECONDS
MEASURED_SECONDS = 3 * INTERVAL_SECONDS


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


def measure(scraper: Scraper, targets: int, whole: bytes, cut: bytes) -> Cost:
    """Run a scraper on `targets` targets; only the time after a warm-up counts."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fleet = stack.enter_context(serving(targets, whole, cut))
        sink = [sys.executable, "-m", "benchmarks.scrape.sink"]
        stack.enter_context(running(sink, folder / "sink.log"))
        command = scraper.command(folder, fleet.addresses)
        process = stack.enter_context(running(command, folder / "log", scraper.environment))
        time.sleep(WARM_UP_SECONDS)
        asked, used = fleet.asked(scraper.agent), cpu_seconds(process.pid)
        time.sleep(MEASURED_SECONDS)
        now = fleet.asked(scraper.agent)
        return Cost(
            scraper=scraper.name,
            targets=targets,
            scrapes=now.scrapes - asked.scrapes,
            cpu_seconds=cpu_seconds(process.pid) - used,
            resident_bytes=resident_bytes(process.pid),
            bytes_asked=now.bytes - asked.bytes,
        )
