"""A fleet in virtual time: what the pipeline sees of the world, and the steps that disturb it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from benchmarks.endurance.engines import FAULTS, Engine
from benchmarks.scrape.pages import filtered, pages
from kvcache_exporter.discovery import Found
from kvcache_exporter.hosts.gpu_watch import GpuState
from kvcache_exporter.hosts.processes import HostProcesses
from kvcache_exporter.model import GpuReading, GpuSourceReading, Problem, Scrape, Target
from kvcache_exporter.scrape import Client
from kvcache_exporter.world import World

PAGE = "real-size names, 1 engine"
GPUS = 4
HOUR = 3600.0
MINUTE = 60.0


class Fleet:
    """Engines, GPUs, discovery and the clock, all under one hand."""

    def __init__(self, targets: int, client: Client) -> None:
        self.now = 1_800_000_000.0
        self.hostile: tuple[Target, ...] = ()
        """Real servers to be scraped as well, for as long as they are here."""
        self._client = client
        self._chance = Random(1)
        self._page = filtered(pages()[PAGE])
        self._started = 0
        self._engines = [self._engine() for _ in range(targets)]
        self._discovery_down_until = self._gpus_down_until = 0.0
        self._generation = 0

    def world(self) -> World:
        """Return what a pipeline reaches this fleet through."""
        return World(self._fetch, self._version, self, lambda: self.now)

    def find(self, now: float) -> Found:
        """Be the finder of the fleet's targets."""
        targets = [Target(one.name, f"http://{one.name}/metrics") for one in self._engines]
        down = Problem("file_sd", "the list cannot be read: its last targets are kept")
        problems = (down,) if now < self._discovery_down_until else ()
        return Found((*targets, *self.hostile), problems)

    def close(self) -> None:
        """Hold nothing."""

    async def read(self, targets: Sequence[Target], now: float) -> GpuState:
        """Be the watch over the fleet's GPUs; lost ones are a source that fails, or raises."""
        if now < self._gpus_down_until:
            if self._chance.random() < 0.1:
                raise OSError("a fault of ours")
            lost = Problem("gpu_lost", "the driver lost a GPU: drain the node")
            return GpuState.of((GpuSourceReading("nvml", now, False, problem=lost),), NOBODY)
        gpus = tuple(self._gpu(index) for index in range(GPUS))
        return GpuState.of((GpuSourceReading("nvml", now, True, gpus, GPUS),), NOBODY)

    def engines_misbehave(self) -> None:
        """Let every second engine have a fault for some minutes."""
        for one in self._engines[::2]:
            one.fault = self._chance.choice(sorted(FAULTS))
            one.until = self.now + self._chance.uniform(1.0, 25.0) * MINUTE

    def engines_restart(self) -> None:
        """Restart a third of the engines, with pools of another size."""
        for one in self._engines[::3]:
            one.restart(self.now)

    def engines_are_replaced(self) -> None:
        """Replace a quarter of the engines by others of other names."""
        for at in range(0, len(self._engines), 4):
            self._engines[at] = self._engine()

    def discovery_fails(self) -> None:
        """Let the list of targets be unreadable for a while."""
        self._discovery_down_until = self.now + 20 * MINUTE

    def gpus_are_lost(self) -> None:
        """Let all GPUs vanish; others come back under their numbers."""
        self._gpus_down_until = self.now + 15 * MINUTE
        self._generation += 1

    def machine_sleeps(self) -> None:
        """Let ten minutes pass in which nobody runs."""
        self.now += 10 * MINUTE

    def _engine(self) -> Engine:
        self._started += 1
        return Engine(f"engine-{self._started}:8000", self._page, self.now, self._chance)

    def _gpu(self, index: int) -> GpuReading:
        used = 70 * 2**30 + self._chance.randrange(2**20)
        uuid = f"GPU-{self._generation}-{index}"
        return GpuReading(uuid, "nvml", index, "H200", "575.1", 80 * 2**30, used)

    async def _fetch(self, target: Target) -> Scrape:
        if target in self.hostile:
            return await self._client.fetch(target)
        engine = next(one for one in self._engines if one.name == target.name)
        answer = engine.answer(self.now)
        if isinstance(answer, Problem):
            return Scrape(target.name, self.now, 0.01, None, answer)
        return Scrape(target.name, self.now, 0.01, answer)

    async def _version(self, target: Target) -> str:
        return "0.32.0"


NOBODY = HostProcesses()
