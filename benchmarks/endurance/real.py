"""The real exporter process for as long as you like, among real servers that do their worst."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

from benchmarks.endurance.fleet import PAGE
from benchmarks.endurance.measure import Look, of_process
from benchmarks.endurance.servers import NAMES, Servers
from benchmarks.scrape.pages import pages
from benchmarks.scrape.processes import running

ADDRESS = "127.0.0.1:9128"
PAGE_URL = f"http://{ADDRESS}/metrics"
GOOD = tuple(f"good-{number}" for number in range(20))
INTERVAL_SECONDS = 5.0
STOP_SECONDS = 5.0
EXTRA_MIB = 40.0
CALM_SHARE = 0.1
"""Of the time, before the first hostile server comes, to know what they add."""


@dataclass
class Lived:
    """What was seen of the process."""

    looks: list[Look] = field(default_factory=list)
    calm_mib: float = 0.0
    most_mib: float = 0.0
    oldest_seconds: float = 0.0
    """The longest that a good target went without a successful scrape."""
    good_failures: float = 0.0
    exit_seconds: float = 0.0
    exit_code: int | None = None

    @property
    def verdicts(self) -> dict[str, bool]:
        """What is promised whatever a target does, and whether it held."""
        return {
            "hostile targets take at most 40 MiB": self.most_mib - self.calm_mib <= EXTRA_MIB,
            "no good target missed a cycle": self.good_failures == 0
            and self.oldest_seconds <= 2 * INTERVAL_SECONDS,
            "SIGTERM ends it within 5 s": self.exit_code == 0 and self.exit_seconds <= STOP_SECONDS,
        }

    def __str__(self) -> str:
        return (
            f"{self.calm_mib:.0f} MiB among {len(GOOD)} good targets, at most {self.most_mib:.0f}"
            f" with {len(NAMES)} hostile ones beside them.\nA good target went at most"
            f" {self.oldest_seconds:.1f} s without a scrape, at one in {INTERVAL_SECONDS:g} s;"
            f" {self.good_failures:.0f} of their scrapes failed.\n"
            f"SIGTERM to exit: {self.exit_seconds:.2f} s, code {self.exit_code}."
        )


def soak(seconds: float) -> Lived:
    """Run the exporter for *seconds*; hostile servers come, churn and stay."""
    with TemporaryDirectory() as name, serving() as servers:
        folder = Path(name)
        config, targets = folder / "exporter.json", folder / "targets.json"
        _list(targets, servers, GOOD)
        config.write_text(json.dumps(_config(folder, targets)))
        command = [sys.executable, "-m", "kvcache_exporter", "run", "--config", str(config)]
        with running(command, folder / "log") as process:
            lived = _watch(process, servers, targets, seconds)
            start = time.monotonic()
            process.send_signal(signal.SIGTERM)
            lived.exit_code = process.wait(60.0)
            lived.exit_seconds = time.monotonic() - start
    return lived


@contextmanager
def serving() -> Iterator[Servers]:
    """Run the servers in a thread of their own."""
    loop, servers = asyncio.new_event_loop(), Servers(pages()[PAGE])
    up, over = Event(), asyncio.Event()

    async def main() -> None:
        async with servers.running():
            up.set()
            await over.wait()

    thread = Thread(target=loop.run_until_complete, args=(main(),), daemon=True)
    thread.start()
    up.wait(10.0)
    try:
        yield servers
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10.0)
        loop.close()


def _config(folder: Path, targets: Path) -> dict[str, object]:
    return {
        "listen_address": ADDRESS,
        "interval_seconds": INTERVAL_SECONDS,
        "state_file": str(folder / "state"),
        "gpus": {"nvml": {"enabled": False}},
        "file_sd": [{"files": [str(targets)], "refresh_seconds": 1.0}],
    }


def _list(path: Path, servers: Servers, names: tuple[str, ...]) -> None:
    groups = [
        {
            "targets": [f"127.0.0.1:{servers.port}"],
            "labels": {"__metrics_path__": f"/{name}/metrics", "instance": name},
        }
        for name in names
    ]
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(groups))
    fresh.rename(path)


def _watch(
    process: subprocess.Popen[bytes], servers: Servers, targets: Path, seconds: float
) -> Lived:
    lived, start, turn = Lived(), time.monotonic(), 0
    while (passed := time.monotonic() - start) < seconds:
        time.sleep(INTERVAL_SECONDS)
        turn += 1
        page = _page()
        look = of_process(process.pid, passed / 3600.0, page.count("\n"))
        if passed < CALM_SHARE * seconds:
            lived.calm_mib = max(lived.calm_mib, look.resident_mib)
            continue
        lived.looks.append(look)
        lived.most_mib = max(lived.most_mib, look.resident_mib)
        lived.oldest_seconds = max(lived.oldest_seconds, _oldest(page))
        lived.good_failures = sum(_good(page, "kvcache_target_scrape_failures_total"))
        passing = tuple(f"passing-{turn}-{number}" for number in range(3))
        _list(targets, servers, (*GOOD, *NAMES, *passing))
        if turn % 12 == 0:
            process.send_signal(signal.SIGHUP)
    return lived


def _page() -> str:
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        with (
            suppress(urllib.error.URLError),
            urllib.request.urlopen(PAGE_URL, timeout=10.0) as page,
        ):
            return str(page.read(), "utf-8")
        time.sleep(0.2)
    raise RuntimeError("the exporter does not answer")


def _oldest(page: str) -> float:
    """Return the age in seconds of the oldest scrape of a good target at the last cycle's end."""
    [now] = _values(page, "kvcache_exporter_cycle_timestamp_seconds")
    return now - min(_good(page, "kvcache_target_last_success_timestamp_seconds"))


def _good(page: str, family: str) -> list[float]:
    return _values("\n".join(line for line in page.splitlines() if "/good-" in line), family)


def _values(page: str, family: str) -> list[float]:
    lines = (line for line in page.splitlines() if line.startswith((f"{family}{{", f"{family} ")))
    return [float(line.rpartition(" ")[2]) for line in lines]
