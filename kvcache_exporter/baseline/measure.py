"""Take the picture: one fixed request again and again, then the engine once it is idle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median

import requests

from kvcache_exporter.baseline.picture import Picture, Spread
from kvcache_exporter.config import Config
from kvcache_exporter.explain import Looked
from kvcache_exporter.look import look_live
from kvcache_exporter.model import EngineReading
from kvcache_exporter.soak.profiles import Ask
from kvcache_exporter.soak.request import Outcome, send, served_model

FIXED = Ask("Name the months of the year in order, one a line.", max_tokens=64)
REPETITIONS = 7
WARM_UPS = 2
IDLE_SECONDS = 20.0


def measure(config: Config, base: str, model: str | None, repetitions: int) -> Picture:
    """Measure the one target of *config*, whose API is at *base*."""
    outcomes = _ask(base, model, repetitions)
    looked = _idle_look(config)
    readings = looked.reading.engines
    first = readings[0] if readings else None
    return Picture(
        taken=datetime.now(UTC).isoformat(timespec="seconds"),
        url=base,
        vllm_version=looked.reading.vllm_version,
        model_name=first.model_name if first else None,
        engines=len(readings) or None,
        pool_blocks=_sum([reading.pool_blocks for reading in readings]),
        block_size_tokens=first.block_size_tokens if first else None,
        cache_dtype=first.cache_dtype if first else None,
        prefix_caching=first.prefix_caching if first else None,
        idle=_idle(readings),
        used_blocks=_sum([reading.used_blocks for reading in readings]),
        hit_ratio=_hit_ratio(readings),
        gpu_used_bytes=_gpu_bytes(looked),
        host_memory_bytes=first.resident_memory_bytes if first else None,
        first_token_seconds=_spread([o.first_token_seconds for o in outcomes]),
        total_seconds=_spread([o.latency_seconds for o in outcomes]),
    )


def _ask(base: str, model: str | None, repetitions: int) -> list[Outcome]:
    """Send the fixed request; a server without a completions API just has no latencies."""
    with requests.Session() as session:
        try:
            name = model or served_model(session, base, 10.0)[0]
        except requests.RequestException:
            return []
        sent = [
            send(session, base, name, FIXED, number, "fixed", 60.0)
            for number in range(WARM_UPS + repetitions)
        ]
    return [outcome for outcome in sent[WARM_UPS:] if outcome.ok]


def _idle_look(config: Config) -> Looked:
    """Look until nobody runs or waits, but not for ever."""
    deadline = time.monotonic() + IDLE_SECONDS
    while True:
        looked = asyncio.run(look_live(config, 2))[0][-1]
        if _idle(looked.reading.engines) or time.monotonic() > deadline:
            return looked


def _idle(readings: Sequence[EngineReading]) -> bool | None:
    if not readings or any(r.running is None or r.waiting is None for r in readings):
        return None
    return all(r.running == 0.0 and r.waiting == 0.0 for r in readings)


def _hit_ratio(readings: Sequence[EngineReading]) -> float | None:
    hits = sum(reading.prefix_hit_tokens or 0.0 for reading in readings)
    queries = sum(reading.prefix_query_tokens or 0.0 for reading in readings)
    return hits / queries if queries else None


def _gpu_bytes(looked: Looked) -> int | None:
    owned = {gpu.uuid for gpus in looked.assignment.gpus.values() for gpu in gpus}
    return _sum([gpu.used_bytes for gpu in looked.gpus if gpu.uuid in owned])


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(round(median(known), 4), round(min(known), 4), round(max(known), 4), len(known))
