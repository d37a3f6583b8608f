"""One hostile target scraped beside a healthy one, which must not notice."""

from __future__ import annotations

import asyncio

import hostile

from kvcache_exporter.model import Credentials, Problem, Scrape, Target
from kvcache_exporter.scrape import Client

TIMEOUT_SECONDS = 0.6
MAX_BODY_BYTES = 256 * 1024


def scrape(server: hostile.Server, **kwargs: Credentials) -> Scrape:
    """Scrape a hostile target together with a healthy one, which must not notice."""

    async def both(healthy: hostile.Server) -> Scrape:
        client = Client(
            timeout_seconds=TIMEOUT_SECONDS, max_body_bytes=MAX_BODY_BYTES, credentials=kwargs
        )
        auth = next(iter(kwargs), None)
        bad, good = await asyncio.gather(
            client.fetch(Target("bad", server.url, auth=auth)),
            client.fetch(Target("good", healthy.url)),
        )
        await client.close()
        assert good.body == hostile.PAGE
        return bad

    with hostile.serve(hostile.always(hostile.response())) as healthy:
        return asyncio.run(both(healthy))


def problem(server: hostile.Server, **kwargs: Credentials) -> Problem:
    result = scrape(server, **kwargs)
    assert result.body is None
    assert result.problem is not None
    assert result.duration_seconds < hostile.LIMIT_SECONDS / 2
    return result.problem
