"""Scrapes as tests want them: one client, one target, one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kvcache_exporter.model import Problem, Scrape, Target
from kvcache_exporter.scrape import Client

T = TypeVar("T")


def run(use: Callable[[Client], Awaitable[T]], **kwargs: object) -> T:
    async def main() -> T:
        client = Client(**{"timeout_seconds": 2.0, **kwargs})  # type: ignore[arg-type]
        try:
            return await use(client)
        finally:
            await client.close()

    return asyncio.run(main())


def fetch(target: Target, **kwargs: object) -> Scrape:
    return run(lambda client: client.fetch(target), **kwargs)


def problem(target: Target, **kwargs: object) -> Problem:
    result = fetch(target, **kwargs)
    assert result.body is None
    assert result.problem is not None
    return result.problem
