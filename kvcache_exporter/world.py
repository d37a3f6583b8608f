"""What the pipeline wants of the world: pages, versions, audits, GPUs and the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvcache_exporter.audits.answers import audit_targets, fetched
from kvcache_exporter.hosts.gpu_watch import GpuState
from kvcache_exporter.model import Audit, Scrape, Target

Fetch = Callable[[Target], Awaitable[Scrape]]
FetchVersion = Callable[[Target], Awaitable[str | None]]


class GpuWatch(Protocol):
    """Reads the GPUs of this host without ever holding up the loop for long."""

    async def read(self, targets: Sequence[Target], now: float) -> GpuState:
        """Read every source, and which engine's processes sit on which GPU."""


@dataclass(slots=True)
class World:
    """Everything outside: replays and tests hand in their own."""

    fetch: Fetch
    fetch_version: FetchVersion
    gpus: GpuWatch
    clock: Callable[[], float]
    fetch_audit: Fetch | None = None
    """Asks an audit that listens on TCP; None = there are none."""
    give_way: Callable[[], None] = lambda: None
    """Called between two engines and two families: others in this process may be in a hurry."""

    async def fetch_audits(self, target: Target, engines: Sequence[str]) -> tuple[Audit, ...]:
        """Ask the audits of a target's engines at once, where it has an address for them."""
        if self.fetch_audit is None or target.audit_url is None:
            return ()
        asked = audit_targets(target, engines)
        answers = await asyncio.gather(*(self.fetch_audit(one) for one in asked.values()))
        return tuple(map(fetched, asked, answers))
