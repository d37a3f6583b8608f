"""One cycle, the steps in order: targets, GPUs, scrapes, readings, owners, verdicts, snapshot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from zlib import crc32

from kvcache_exporter.config import Config, shard_of
from kvcache_exporter.discovery import Finder, Found, find_all
from kvcache_exporter.follow import Follower
from kvcache_exporter.hosts.gpu_view import GpuView
from kvcache_exporter.hosts.gpu_watch import GpuMemory, GpuState
from kvcache_exporter.hosts.merge import Assignment, assign
from kvcache_exporter.indicators.outside_pool import outside_pool_bytes
from kvcache_exporter.judge import Judge
from kvcache_exporter.model import (
    EngineStatus,
    Problem,
    Scrape,
    Snapshot,
    Target,
    TargetReading,
    TargetStatus,
)
from kvcache_exporter.world import World

log = logging.getLogger(__name__)

SPREAD_SECONDS_PER_TARGET = 0.005
"""Ten targets are asked within 50 ms, a thousand over 5 s: load is spread, few wait for it."""
SLOT_SECONDS = 0.1
"""Targets are asked a slot at a time: a process that is woken for each of them finds its caches
cold, which costs as much again as the scrape."""

Looked = tuple[Follower, Scrape, TargetReading]

INTERNAL_ERROR = Problem(
    "internal_error",
    "the exporter itself failed here, the others go on; its log has the traceback: report it with "
    "a recording (kvcache-exporter record)",
)


class Pipeline:
    """Holds what has to survive from cycle to cycle: a follower for each target."""

    def __init__(
        self,
        config: Config,
        finders: list[Finder],
        world: World,
        remembered: dict[str, dict[str, Judge]] | None = None,
    ) -> None:
        """*remembered* are judges of an earlier run, by target and engine."""
        self.config = config
        self.notes: tuple[Problem, ...] = ()
        """Problems of whoever runs the pipeline, to be shown with its own."""
        self._remembered = remembered or {}
        self.followers: dict[str, Follower] = {}
        self._finders = finders
        self._before: tuple[Target, ...] = ()
        """Targets before a reload, until the new finders have their first lists."""
        self._world = world
        self._cycles = 0
        self._tokens: dict[tuple[str, str], float | None] = {}
        self._gpu_memory = GpuMemory()
        self._broken: set[str] = set()

    async def cycle(self, reload_ok: bool = True) -> Snapshot:
        """Look at everything once."""
        start = self._world.clock()
        shard = shard_of(self.config.shard or "") or (0, 1)
        found = find_all(self._finders, start, shard, self._before)
        self._before = () if found.complete else self._before
        followers = self._follow(found.targets)
        spread = self._spread(len(followers))
        begin = asyncio.get_running_loop().time()
        looks = asyncio.gather(*(self._look(one, begin, spread) for one in followers))
        gpus, looked = await asyncio.gather(self._read_gpus(found.targets, start), looks)
        self._cycles += 1
        gpus = self._gpu_memory.observe(gpus, start, worked=self._worked(looked))
        return self._snapshot(found, gpus, looked, start, reload_ok)

    def reconfigure(self, config: Config, finders: list[Finder], world: World) -> None:
        """Go on under another configuration; what is known of unchanged targets stays."""
        for finder in self._finders:
            finder.close()
        self._before = tuple(follower.target for follower in self.followers.values())
        if config.judge != self.config.judge:
            self.followers.clear()
        self.config, self._finders, self._world = config, finders, world

    def _follow(self, targets: Sequence[Target]) -> list[Follower]:
        """Keep one follower a target; a target that is gone or changed is forgotten."""
        self._broken &= {"gpus", *(target.name for target in targets)}
        self.followers = {
            target.name: known
            if (known := self.followers.get(target.name)) and known.target == target
            else self._new_follower(target)
            for target in targets
        }
        return list(self.followers.values())

    def _new_follower(self, target: Target) -> Follower:
        follower = Follower(target, self.config.judge)
        if judges := self._remembered.pop(target.name, None):
            follower.restore(judges, self._world.clock())
        return follower

    def _spread(self, targets: int) -> float:
        """Seconds over which a cycle spreads its scrapes; the first cycle waits for nobody."""
        room = self.config.interval_seconds - self.config.scrape_timeout_seconds
        return min(room, targets * SPREAD_SECONDS_PER_TARGET) if self._cycles else 0.0

    async def _read_gpus(self, targets: Sequence[Target], now: float) -> GpuState:
        try:
            return await self._world.gpus.read(targets, now)
        except Exception:
            return GpuState(view=GpuView(problems=(self._internal_error("gpus"),)))

    async def _look(self, follower: Follower, begin: float, spread: float) -> Looked:
        target = follower.target
        if spread:
            turn = begin + _slot(target.name, spread)
            await asyncio.sleep(turn - asyncio.get_running_loop().time())
        try:
            return await self._read(follower)
        except Exception:
            problem = self._internal_error(target.name)
            scrape = Scrape(target.name, self._world.clock(), 0.0, None, problem)
            return follower, scrape, TargetReading((), (problem,))

    async def _read(self, follower: Follower) -> Looked:
        if follower.target.audit_url is None:
            scrape = await self._world.fetch(follower.target)
        else:
            scrape, follower.audits = await asyncio.gather(
                self._world.fetch(follower.target),
                self._world.fetch_audits(follower.target, follower.engines),
            )
        self._world.give_way()
        reading = follower.read(scrape)
        if reading.engines and not follower.version_asked:
            follower.version_asked = True
            follower.version = await self._world.fetch_version(follower.target)
        return follower, replace(scrape, body=None), reading  # a thousand pages are 90 MB

    def _judge(
        self, looked: Looked, gpus: GpuState
    ) -> tuple[TargetStatus, tuple[EngineStatus, ...]]:
        follower, scrape, reading = looked
        try:
            audits = (*follower.audits, *gpus.audits_of(follower.target.name))
            return follower.judge(scrape, reading, self._assign(follower, reading, gpus), audits)
        except Exception:
            problem = self._internal_error(follower.target.name)
            seconds = scrape.duration_seconds
            return TargetStatus(follower.target, False, None, seconds, (problem,)), ()

    def _internal_error(self, where: str) -> Problem:
        """Log the traceback in hand, once for each place: a fault of ours must not stop a cycle."""
        if where not in self._broken:
            self._broken.add(where)
            log.exception("%s: internal error", where)
        return INTERNAL_ERROR

    def _snapshot(
        self,
        found: Found,
        gpus: GpuState,
        looked: Sequence[Looked],
        start: float,
        reload_ok: bool,
    ) -> Snapshot:
        targets: list[TargetStatus] = []
        engines: list[EngineStatus] = []
        for one in looked:
            self._world.give_way()
            status, judged = self._judge(one, gpus)
            if status.target.guessed and status.last_success_time is None:
                continue
            targets.append(status)
            engines.extend(judged)
        end = self._world.clock()
        return Snapshot(
            time=end,
            cycle_duration_seconds=end - start,
            targets=tuple(targets),
            engines=tuple(engines[: self.config.max_engines]),
            gpu_sources=gpus.sources,
            gpus=gpus.view.gpus,
            problems=(
                *found.problems,
                *gpus.problems,
                *self.notes,
                *self._too_many(len(engines)),
            ),
            gpu_outside_pool_bytes=outside_pool_bytes(one.judgement for one in engines),
            gpu_unowned_bytes=gpus.unowned_bytes,
            config_reload_ok=reload_ok,
        )

    @staticmethod
    def _assign(follower: Follower, reading: TargetReading, gpus: GpuState) -> Assignment:
        names = [one.engine for one in reading.engines] or list(follower.engines)
        found = assign(follower.target, names, gpus.view.gpus, gpus.host)
        if reading.engines or found.gpus:
            return found
        return follower.last_gpus(gpus.view.gpus)  # a dead server's workers may hold them still

    def _worked(self, looked: Sequence[Looked]) -> bool:
        """Whether any engine generated tokens since the last cycle."""
        before, self._tokens = (
            self._tokens,
            {
                (follower.target.name, one.engine): one.generation_tokens
                for follower, _, reading in looked
                for one in reading.engines
            },
        )
        return any(before.get(key, now) != now for key, now in self._tokens.items())

    def _too_many(self, engines: int) -> tuple[Problem, ...]:
        if engines <= self.config.max_engines:
            return ()
        text = (
            f"{engines} engines found, the first {self.config.max_engines} are exposed: "
            "raise max_engines or split the targets over several exporters"
        )
        return (Problem("too_many_engines", text),)


def _slot(name: str, spread: float) -> float:
    """Return when in a cycle a target has its turn: always the same, so that its interval holds."""
    return spread * (crc32(name.encode()) / 2**32) // SLOT_SECONDS * SLOT_SECONDS
