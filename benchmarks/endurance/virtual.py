"""Days in minutes: the real pipeline on a virtual clock, with a disturbance every hour."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.endurance.fleet import HOUR, PAGE, Fleet
from benchmarks.endurance.measure import Look, own
from benchmarks.endurance.servers import NAMES, Servers
from benchmarks.scrape.pages import pages
from kvcache_exporter.cli._report import Reporter
from kvcache_exporter.config import Config
from kvcache_exporter.model import Snapshot, Target
from kvcache_exporter.own_process import trim
from kvcache_exporter.pipeline import Pipeline
from kvcache_exporter.scrape import Client
from kvcache_exporter.serve import pages as rendered
from kvcache_exporter.state_file.keep import Keeper

REAL_TIMEOUT_SECONDS = 0.3


class Soak:
    """One run: a pipeline that is fed, disturbed, reloaded, restarted and looked at."""

    def __init__(self, targets: int, interval_seconds: float, folder: Path) -> None:
        self._interval_seconds = interval_seconds
        self._state = folder / "state"
        self._client = Client(timeout_seconds=REAL_TIMEOUT_SECONDS)
        self._servers = Servers(pages()[PAGE])
        self._report = Reporter()
        self.fleet = Fleet(targets, self._client)
        # A timeout as long as the interval leaves no room to spread the scrapes over real time.
        self._config = Config(interval_seconds=interval_seconds, timeout_seconds=interval_seconds)
        self._keeper = Keeper(self._state)
        self._pipeline = self._start()
        self.steps: Sequence[Callable[[], None]] = (
            self.fleet.engines_misbehave,
            self.fleet.engines_restart,
            self.configuration_is_reloaded,
            self.fleet.engines_are_replaced,
            self.fleet.discovery_fails,
            self.fleet.engines_misbehave,
            self.fleet.gpus_are_lost,
            self.exporter_restarts,
            self.fleet.machine_sleeps,
        )
        """One an hour, in turn."""

    async def run(self, hours: float) -> list[Look]:
        """Let the hours pass; look at ourselves at the end of each."""
        begin, looks = self.fleet.now, list[Look]()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._servers.running())
            stack.push_async_callback(self._client.close)
            for hour in range(1, int(hours) + 1):
                self.steps[hour % len(self.steps)]()
                await self._cycle_until(begin + hour * HOUR)
                await self._meet_the_worst()
                snapshot = await self._cycle()
                trim()
                looks.append(own(hour, rendered(snapshot)["/metrics"].body.count(b"\n")))
        self._keeper.close()
        return looks

    async def _cycle_until(self, end: float) -> None:
        while self.fleet.now < end:
            self._report(await self._cycle())
            self._keeper.save_if_due(self._pipeline.followers, self.fleet.now)

    async def _cycle(self) -> Snapshot:
        self.fleet.now += self._interval_seconds
        snapshot = await self._pipeline.cycle()
        rendered(snapshot)
        return snapshot

    async def _meet_the_worst(self) -> None:
        """Scrape real hostile servers, and show people the outcome."""
        self.fleet.hostile = tuple(Target(name, self._servers.url(name)) for name in NAMES)
        snapshot = await self._cycle()
        self._report(snapshot)
        shown = rendered(snapshot)
        assert shown["/"].body
        assert shown["/api/v1/engines"].body
        self.fleet.hostile = ()
        self._client.retain(())

    def _start(self) -> Pipeline:
        return Pipeline(self._config, [self.fleet], self.fleet.world(), self._keeper.load())

    def configuration_is_reloaded(self) -> None:
        """Go on under a configuration read anew."""
        self._pipeline.reconfigure(self._config, [self.fleet], self.fleet.world())

    def exporter_restarts(self) -> None:
        """End the exporter and start it on its state file."""
        self._keeper.save(self._pipeline.followers)
        self._keeper.close()
        self._keeper = Keeper(self._state)
        self._pipeline = self._start()


def soak(hours: float, targets: int, interval_seconds: float) -> tuple[list[Look], list[str]]:
    """Run; return the looks and what happened between them."""
    with TemporaryDirectory() as folder, _quiet():
        run = Soak(targets, interval_seconds, Path(folder))
        happened = dict.fromkeys(step.__name__.replace("_", " ") for step in run.steps)
        return asyncio.run(run.run(hours)), list(happened)


@contextmanager
def _quiet() -> Iterator[None]:
    log = logging.getLogger("kvcache_exporter")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
