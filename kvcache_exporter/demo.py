"""The demo: a simulated fleet below the real exporter, in lockstep on the fleet's virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from kvcache_exporter.config import Config, TargetConfig, static_targets
from kvcache_exporter.discovery import Found
from kvcache_exporter.hosts.gpu_view import one_view
from kvcache_exporter.hosts.gpu_watch import GpuState
from kvcache_exporter.model import Snapshot, Target
from kvcache_exporter.outside import Outside
from kvcache_exporter.pipeline import Pipeline
from kvcache_exporter.simulate.fleet import Fleet
from kvcache_exporter.simulate.server import Server

INTERVAL_SECONDS = 60.0
"""Virtual seconds between scrapes; shorter ones would only make the demo slower."""


@dataclass(frozen=True, slots=True)
class SimulatedGpus:
    """Hands the pipeline what the driver of the simulated fleet would say."""

    fleet: Fleet

    async def read(self, targets: Sequence[Target], now: float) -> GpuState:
        """Read the one source there is."""
        reading = self.fleet.read_gpus()
        return GpuState((reading,), one_view((reading,)))


@dataclass(frozen=True, slots=True)
class Deployed:
    """Discovers the servers of the fleet when they are deployed."""

    fleet: Fleet
    targets: tuple[Target, ...]

    def find(self, now: float) -> Found:
        """Return those that exist by now."""
        names = self.fleet.deployed
        return Found(tuple(target for target in self.targets if target.name in names))

    def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class Stage:
    """The fleet, and the exporter that watches it over HTTP."""

    fleet: Fleet
    pipeline: Pipeline
    interval_seconds: float
    urls: Mapping[str, str]
    """Metrics pages by server name."""

    async def cycle(self) -> Snapshot:
        """Let one scrape interval pass and look at everything."""
        self.fleet.advance(self.interval_seconds)
        return await self.pipeline.cycle()


@asynccontextmanager
async def stage(fleet: Fleet, interval_seconds: float = INTERVAL_SECONDS) -> AsyncIterator[Stage]:
    """Start a server for each site on a free port of loopback and point a pipeline at them."""
    servers = {name: Server(site) for name, site in fleet.sites.items()}
    for server in servers.values():
        await server.start()
    urls = {name: server.url() for name, server in servers.items()}
    config = _config(fleet, urls, interval_seconds)
    outside = Outside(config, lambda: fleet.time)
    world = replace(outside.world, gpus=SimulatedGpus(fleet))
    finder = Deployed(fleet, static_targets(config))
    try:
        yield Stage(fleet, Pipeline(config, [finder], world), interval_seconds, urls)
    finally:
        await outside.close()
        for server in servers.values():
            await server.stop()


def _config(fleet: Fleet, urls: Mapping[str, str], interval_seconds: float) -> Config:
    targets = [
        TargetConfig(url, name, gpu_uuids=(fleet.gpu_uuid(name),)) for name, url in urls.items()
    ]
    return Config(
        interval_seconds=interval_seconds,
        timeout_seconds=interval_seconds,  # leaves no time over which to spread the scrapes
        targets=tuple(targets),
        gpus={"nvml": {"enabled": False}},
    )
