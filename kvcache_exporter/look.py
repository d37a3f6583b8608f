"""Looking at targets by hand: live for a few scrapes, or along a recording."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

from kvcache_exporter import recording
from kvcache_exporter.clock import SteadyClock
from kvcache_exporter.config import Config, static_targets
from kvcache_exporter.explain import Looked
from kvcache_exporter.follow import Follower
from kvcache_exporter.hosts.gpu_watch import GpuState
from kvcache_exporter.hosts.merge import assign, assign_recorded, gpus_of_target
from kvcache_exporter.model import Target
from kvcache_exporter.outside import Outside


async def entries(config: Config, scrapes: int | None) -> AsyncIterator[list[recording.Entry]]:
    """Yield one round of whole pages with GPUs after the other; None = until cancelled."""
    outside = Outside(config, SteadyClock())
    targets = static_targets(config)
    try:
        count = 0
        while scrapes is None or count < scrapes:
            if count:
                await asyncio.sleep(config.interval_seconds)
            scrapes_now = asyncio.gather(*(outside.world.fetch(target) for target in targets))
            gpus = await outside.world.gpus.read(targets, outside.clock())
            seen = [gpus_of_target(one, gpus.view.gpus, gpus.host) for one in targets]
            pages = zip(await scrapes_now, seen, strict=True)
            yield [recording.Entry(page, its or gpus.view.gpus) for page, its in pages]
            count += 1
    finally:
        await outside.close()


async def look_live(config: Config, scrapes: int) -> list[list[Looked]]:
    """Follow the configured targets for a few scrapes; return all looks, target by target."""
    outside = Outside(config, SteadyClock())
    followers = [Follower(target, config.judge) for target in static_targets(config)]
    try:
        rounds = []
        for count in range(1, scrapes + 1):
            if count > 1:
                await asyncio.sleep(config.interval_seconds)
            gpus = await outside.world.gpus.read([f.target for f in followers], outside.clock())
            looks = (look(follower, outside, gpus, count) for follower in followers)
            rounds.append(await asyncio.gather(*looks))
        return [list(looks) for looks in zip(*rounds, strict=True)]
    finally:
        await outside.close()


async def look(follower: Follower, outside: Outside, gpus: GpuState, count: int) -> Looked:
    """Take one look at a target; *count* says how many there have been with this one."""
    scrape = await outside.world.fetch(follower.target)
    reading = follower.read(scrape)
    if reading.engines and not follower.version_asked:
        follower.version_asked = True
        follower.version = await outside.world.fetch_version(follower.target)
        reading = replace(reading, vllm_version=follower.version)
    names = [one.engine for one in reading.engines]
    assignment = assign(follower.target, names, gpus.view.gpus, gpus.host)
    audits = await outside.world.fetch_audits(follower.target, names)
    audits += gpus.audits_of(follower.target.name)
    status, engines = follower.judge(scrape, reading, assignment, audits)
    return Looked(
        scrape, reading, gpus.view.gpus, assignment, status, engines, count, gpus.problems
    )


def look_along(path: Path, config: Config) -> Iterator[Looked]:
    """Follow a recording; yields the look at every scrape of every target in it."""
    followers: dict[str, Follower] = {}
    counts: dict[str, int] = {}
    for entry in recording.read(path):
        name = entry.scrape.target
        target = Target(name, f"recording:{path.name}")
        follower = followers.setdefault(name, Follower(target, config.judge))
        counts[name] = counts.get(name, 0) + 1
        reading = follower.read(entry.scrape)
        names = [one.engine for one in reading.engines] or list(follower.engines)
        assignment = assign_recorded(names, entry.gpus, alive=bool(reading.engines))
        status, engines = follower.judge(entry.scrape, reading, assignment)
        yield Looked(entry.scrape, reading, entry.gpus, assignment, status, engines, counts[name])
