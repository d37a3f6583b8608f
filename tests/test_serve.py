"""The loop around the cycles: a fault in one does not end the next, and it leaves when told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import hostile
import pytest
from exporter_process import free_port

from kvcache_exporter.config import Config, TargetConfig
from kvcache_exporter.model import Snapshot
from kvcache_exporter.serve import serve

PAGE = b"vllm:kv_cache_usage_perc 0.5\n"


@pytest.fixture
def config() -> Iterator[Config]:
    with hostile.serve(hostile.always(hostile.response(PAGE))) as server:
        yield Config(
            listen_address=f"127.0.0.1:{free_port()}",
            interval_seconds=1.0,
            targets=(TargetConfig(server.url),),
        )


def test_a_cycle_that_fails_is_followed_by_the_next(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Snapshot] = []

    def report(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        if len(seen) == 1:
            raise RuntimeError("a fault of ours")
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(serve(config, lambda: config, report))
    assert len(seen) == 2
    assert "RuntimeError: a fault of ours" in caplog.text


def test_it_can_be_served_again_on_the_same_address(config: Config) -> None:
    for _ in range(2):
        asyncio.run(serve(config, lambda: config, lambda _: os.kill(os.getpid(), signal.SIGTERM)))
