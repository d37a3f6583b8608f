"""CPU of each step of one scrape, in this process, against targets in another."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.scrape.targets import serving
from kvcache_exporter.engines import vllm
from kvcache_exporter.follow import Follower
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Scrape, Target
from kvcache_exporter.samples import Parser
from kvcache_exporter.scrape import Client

TARGETS = 100
ROUNDS = 30
WARM_UP = 3
STEP_SECONDS = 0.01
"""Shorter than a round, so that none meets the pages of the round before."""


@dataclass(frozen=True, slots=True)
class Steps:
    """CPU milliseconds per scrape, the best of the rounds: others only ever add to it."""

    fetch: float
    fetch_anew: float
    """With a connection of its own, as vLLM's 5 s of patience with idle ones enforces."""
    filter_and_parse: float
    """Alone, without the fetch."""
    whole: float
    """Fetch, filter, parse, reading and verdict."""


def measure(page: bytes, filtered: bytes) -> Steps:
    """Scrape `TARGETS` targets that serve `page`, over kept connections."""
    with serving(TARGETS, page, filtered, STEP_SECONDS) as fleet:
        return asyncio.run(
            _measure([Target(one, f"http://{one}/metrics") for one in fleet.addresses])
        )


async def _measure(targets: list[Target]) -> Steps:
    client = Client(timeout_seconds=30.0, connect_timeout_seconds=30.0)
    followers = [Follower(target, JudgeSettings()) for target in targets]
    parsers = [Parser(vllm.NAMES, vllm.PLAIN) for _ in targets]
    last: deque[list[Scrape]] = deque(maxlen=2)

    async def fetch() -> None:
        scrapes = await asyncio.gather(*(client.fetch(target) for target in targets))
        assert all(scrape.body for scrape in scrapes), scrapes[0].problem
        last.append(scrapes)

    async def fetch_anew() -> None:
        client.retain(())
        await fetch()

    async def parse() -> None:
        last.rotate()  # a page that has not moved would be read at a glance
        for parser, scrape in zip(parsers, last[0], strict=True):
            parser.parse(scrape.body or b"")

    async def whole() -> None:
        async def one(target: Target, follower: Follower) -> None:
            scrape = await client.fetch(target)
            follower.judge(scrape, follower.read(scrape))

        await asyncio.gather(*map(one, targets, followers))

    steps = Steps(await _cpu(fetch), await _cpu(fetch_anew), await _cpu(parse), await _cpu(whole))
    await client.close()
    return steps


async def _cpu(step: Callable[[], Awaitable[None]]) -> float:
    for _ in range(WARM_UP):
        await step()
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        await step()
        rounds.append(time.process_time() - start)
    return min(rounds) / TARGETS * 1e3
