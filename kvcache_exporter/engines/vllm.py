"""vLLM V0 0.4.2 to V1 0.32: one page to one reading per engine, None for what it does not say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvcache_exporter.engines import _vllm_names as names
from kvcache_exporter.engines._vllm_layout import (
    EngineLayout,
    Layout,
    Positions,
    Series,
    layout,
)
from kvcache_exporter.model import EngineReading, Problem, Sample, TargetReading
from kvcache_exporter.pool_size.capacity import Pool, update

NAMES = names.NAMES
PLAIN = names.PLAIN

Fields = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Memory:
    """What one page teaches about the next: the meaning of its series, the size of its pools."""

    series: Sequence[Series] = ()
    layout: Layout = field(default_factory=Layout)
    pools: Mapping[str, Pool] = field(default_factory=dict)


def read(
    samples: Sequence[Sample], memory: Memory | None = None, configured_blocks: int | None = None
) -> tuple[TargetReading, Memory]:
    """Read one page; pass the returned memory on to the next page of the same target."""
    memory = memory or Memory()
    series = [sample[:2] for sample in samples]
    page = memory.layout if series == memory.series else layout(series, configured_blocks)
    values = [sample[2] for sample in samples]
    process = _fields(values, page.process)
    engines, pools = [], {}
    for one in page.engines:
        pool = memory.pools.get(one.engine, _UNKNOWN)
        reading, pools[one.engine] = _engine(_fields(values, one), process, one, pool)
        engines.append(reading)
    return TargetReading(tuple(engines), page.problems), Memory(series, page, pools)


def absence(body: bytes) -> Problem:
    """Say why a sound page has no vLLM series, and what to do."""
    lines = [line for line in body.split(b"\n") if line and not line.startswith(b"#")]
    found = sorted(
        {line.split(b"{")[0].split(b" ")[0].decode("utf-8", "replace") for line in lines}
    )
    foreign = [name for name in found if not name.startswith(("python_", "process_", "http_"))]
    if foreign:
        text = (
            f"a metrics page without vLLM series (it has {foreign[0][:60]!r} and "
            f"{len(foreign) - 1} more): another exporter answers here, point to vLLM's own port"
        )
    elif lines:
        text = (
            "only process metrics, not one vLLM series: start vLLM without --disable-log-stats "
            "(its statistics are off, so nobody can see its KV cache)"
        )
    else:
        text = "the page has no samples at all: the server may still be starting, look again soon"
    return Problem("no_vllm_series", text)


def _fields(values: Sequence[float], where: Positions) -> Fields:
    """Pick the values; NaN and infinity say nothing, and a poisoned sum would stay so for ever."""
    fields = {key: values[at] for key, at in where.single}
    for key, members in where.summed:
        fields[key] = sum(max(values[at] for at in copies) for copies in members)
    if math.isfinite(sum(fields.values())):
        return dict(fields)
    return {key: value if math.isfinite(value) else None for key, value in fields.items()}


def _engine(
    fields: Fields, process: Fields, one: EngineLayout, pool: Pool
) -> tuple[EngineReading, Pool]:
    lost = [key for key, value in fields.items() if value is None]
    usage, awake = fields.pop("usage_ratio", None), fields.pop("awake", None)
    started = process.get(names.START, fields.pop("created", None))
    if usage is not None and 1.0 < usage <= 1.0 + 1e-6:
        usage = 1.0  # forgive the last bit
    countable = usage is not None and 0.0 <= usage <= 1.0
    if usage is not None and countable:
        idle = fields.get("running") == 0.0 and fields.get("waiting") == 0.0
        pool = update(pool, one.claims, usage, idle)
    _translate(fields, one)
    known: dict[str, Any] = {**one.facts, **fields}
    blocks, size = pool.blocks, one.block_size_tokens
    reading = EngineReading(
        usage_ratio=usage,
        pool_blocks=blocks,
        used_blocks=pool.used(usage) if usage is not None and countable else None,
        pool_tokens=one.pool_tokens or (blocks * size if blocks and size else None),
        sleeping=None if awake is None else awake == 0.0,
        http_requests=process.get(names.HTTP),
        process_start_time_seconds=started,
        resident_memory_bytes=process.get(names.MEMORY),
        problems=(*one.problems, *_problems(usage, blocks, lost)),
        **known,
    )
    return reading, pool


_UNKNOWN = Pool()


def _translate(fields: Fields, one: EngineLayout) -> None:
    """Put into today's units and fields what older releases say otherwise."""
    if one.hits_in_blocks and one.block_size_tokens:  # 0.8.x counts lookups in blocks
        for key in ("prefix_hit_tokens", "prefix_query_tokens"):
            if (value := fields.get(key)) is not None:
                fields[key] = value * one.block_size_tokens
    if fields.get("completions") is None:
        fields["completions"] = fields.get("finished_requests")
    if (hit_ratio := fields.get("hit_ratio")) is not None and hit_ratio < 0.0:
        fields["hit_ratio"] = None  # V0 prints -1 for "disabled"


def _problems(usage: float | None, blocks: int | None, lost: Sequence[str]) -> Iterable[Problem]:
    if usage is None:
        yield Problem(
            "usage_missing",
            "no finite KV usage gauge on the page: this engine's blocks cannot be counted; "
            "check the vLLM version against docs/metrics.md",
        )
    elif not 0.0 <= usage <= 1.0:
        yield Problem(
            "usage_out_of_range",
            f"KV usage reads {usage:g}, outside 0..1 (more blocks free than exist, or a rewritten "
            "scale): nothing is derived from it; report it to vLLM with a recording",
        )
    elif blocks is None:
        yield Problem(
            "pool_size_unknown",
            "num_gpu_blocks on the page is missing or wrong, so usage stays a ratio for now: "
            "set num_gpu_blocks for this target, or wait until enough different values were seen",
        )
    if lost:
        yield Problem("not_finite", f"{lost[0]} is NaN or infinite: it is left out this time")
