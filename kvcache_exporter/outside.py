"""Everything that the pipeline reaches the world through: HTTP client, versions, GPUs, clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress

from kvcache_exporter.config import Config
from kvcache_exporter.engines import vllm
from kvcache_exporter.gpus import open_sources
from kvcache_exporter.hosts.gpu_watch import HostGpus
from kvcache_exporter.model import Problem, Scrape, Target
from kvcache_exporter.samples import Parser
from kvcache_exporter.scrape import Client, FilteredRoute
from kvcache_exporter.scrape.reasons import answered
from kvcache_exporter.world import World


class Outside:
    """Everything the pipeline reaches the world through, under one configuration."""

    def __init__(
        self,
        config: Config,
        clock: Callable[[], float],
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = Client(
            timeout_seconds=config.scrape_timeout_seconds,
            max_body_bytes=config.max_body_bytes,
            credentials=config.auth,
            clock=clock,
        )
        parser = Parser(vllm.NAMES, vllm.PLAIN)
        wanted = [*(f"vllm:{name}" for name in sorted(vllm.NAMES)), *sorted(vllm.PLAIN)]
        self._filtered = FilteredRoute(self._client.fetch, wanted, parser.parse)
        self._use_filtered = config.filtered_route
        loop = asyncio.get_running_loop()
        self._gpus = HostGpus(open_sources(_page_fetcher(self._client, loop), config.gpus))
        self.world = World(self._fetch, self._version, self._gpus, clock, self._audit, give_way)
        self.clock = clock

    async def _fetch(self, target: Target) -> Scrape:
        if self._use_filtered:
            return await self._filtered.fetch(target)
        return await self._client.fetch(target)

    async def _version(self, target: Target) -> str | None:
        """Ask vLLM's ``/version``, which all releases have; None where nobody answers it."""
        scrape = await self._client.fetch(target, "/version", answered)
        with suppress(ValueError, AttributeError, RecursionError):
            version = json.loads(scrape.body or b"").get("version")
            return version[:64] if isinstance(version, str) else None
        return None

    async def _audit(self, target: Target) -> Scrape:
        return await self._client.fetch(target, check=answered)

    def retain(self, names: list[str]) -> None:
        """Close what was kept open for targets that are gone."""
        self._client.retain(names)
        self._filtered.retain(names)

    async def close(self) -> None:
        """Let go of connections and GPU sources; nothing here waits for a call that hangs."""
        self._gpus.close()
        await self._client.close()


def _page_fetcher(
    client: Client, loop: asyncio.AbstractEventLoop
) -> Callable[[str], bytes | Problem]:
    """Let a GPU source, which lives in a thread, get a page through the loop's client."""

    def fetch(url: str) -> bytes | Problem:
        scrape = asyncio.run_coroutine_threadsafe(
            client.fetch(Target(f"gpus {url}", url)), loop
        ).result(30.0)
        return scrape.body or scrape.problem or Problem("failed", f"{url}: no answer")

    return fetch
