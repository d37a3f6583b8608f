"""From a simulated trace to what the judge sees."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.detection.scenario import COLUMNS, Trace
from kvcache_exporter.model import EngineReading, Observation

EPOCH = 1_790_000_000.0
"""Unix time of second 0; any will do."""


def observations(trace: Trace) -> Iterator[Observation]:
    """One a scrape; a scrape that failed has no reading."""
    for row in trace.rows.tolist():
        values = dict(zip(COLUMNS, row, strict=True))
        reading = _reading(values, trace) if values["up"] else None
        yield Observation(EPOCH + values["time"], trace.scenario, "0", reading)


def _reading(values: dict[str, float], trace: Trace) -> EngineReading:
    pool = int(values["pool"])
    return EngineReading(
        engine="0",
        running=values["running"],
        waiting=values["waiting"],
        usage_ratio=values["used"] / pool,
        pool_blocks=pool,
        used_blocks=int(values["used"]),
        block_size_tokens=trace.block_size,
        sleeping=bool(values["sleeping"]),
        connector=trace.connector,
        prompt_tokens=values["prompt_tokens"],
        generation_tokens=values["generation_tokens"],
        finished_prompt_tokens=values["finished_prompt_tokens"],
        finished_generation_tokens=values["finished_generation_tokens"],
        finished_requests=values["finished_requests"],
        first_tokens=values["first_tokens"],
        completions=values["finished_requests"],
        prefix_hit_tokens=values["prefix_hit_tokens"],
        prefix_query_tokens=values["prefix_query_tokens"],
        preemptions=values["preemptions"],
        http_requests=values["http_requests"],
        process_start_time_seconds=EPOCH + values["start_time"],
    )
