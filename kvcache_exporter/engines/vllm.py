"""vLLM V0 0.4.2 to V1 0.32: one page to one reading per engine, None for what it does not say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kvcache_exporter.capacity import Pool, update
from kvcache_exporter.engines import _vllm_names as names
from kvcache_exporter.engines._vllm_layout import (
    EngineLayout,
    Layout,
    Positions,
    Series,
    integer,
    layout,
)
from kvcache_exporter.model import EngineReading, Problem, Sample, TargetReading
from kvcache_exporter.samples import number

NAMES = names.NAMES
PLAIN = names.PLAIN


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
    process = {name: _sum(values, positions) for name, positions in page.process.items()}
    engines, pools = [], {}
    for one in page.engines:
        fields = {key: _sum(values, positions) for key, positions in one.fields.items()}
        pool = _pool(fields, one, memory.pools.get(one.engine, Pool()))
        engines.append(_reading(fields, process, one, pool))
        pools[one.engine] = pool
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


def _sum(values: Sequence[float], positions: Positions) -> float | None:
    """Add up a field; NaN and infinity say nothing, and a poisoned sum would stay so for ever."""
    total = 0.0
    for copies in positions:
        total += values[copies[0]] if len(copies) == 1 else max(values[i] for i in copies)
    return total if total - total == 0.0 else None


def _pool(fields: Mapping[str, float | None], one: EngineLayout, pool: Pool) -> Pool:
    usage = _ratio(fields.get("usage_ratio"))
    if usage is None or not 0.0 <= usage <= 1.0:
        return pool
    idle = fields.get("running") == 0.0 and fields.get("waiting") == 0.0
    return update(pool, one.claims, usage, idle)


def _reading(
    fields: dict[str, float | None],
    process: Mapping[str, float | None],
    one: EngineLayout,
    pool: Pool,
) -> EngineReading:
    problems = (*one.problems, *_problems(fields, one, pool))
    usage = _ratio(fields.pop("usage_ratio", None))
    awake, created = fields.pop("awake", None), fields.pop("created", None)
    block_size = integer(one.info.get("block_size"))
    if one.hits_in_blocks and block_size:  # 0.8.x counts lookups in blocks, later ones in tokens
        for key in ("prefix_hit_tokens", "prefix_query_tokens"):
            fields[key] = None if (v := fields.get(key)) is None else v * block_size
    if fields.get("completions") is None:
        fields["completions"] = fields.get("finished_requests")
    if (hit_ratio := fields.get("hit_ratio")) is not None and hit_ratio < 0.0:
        fields["hit_ratio"] = None  # V0 prints -1 for "disabled"
    return EngineReading(
        engine=one.engine,
        model_name=one.model_name,
        naming=one.naming,
        usage_ratio=usage,
        pool_blocks=pool.blocks,
        used_blocks=pool.used(usage) if usage is not None and 0.0 <= usage <= 1.0 else None,
        block_size_tokens=block_size,
        pool_tokens=_pool_tokens(one.info, pool, block_size),
        pool_bytes=integer(one.info.get("kv_cache_memory_bytes")),
        cache_dtype=one.info.get("cache_dtype"),
        prefix_caching=_FLAG.get(one.info.get("enable_prefix_caching", "")),
        gpu_memory_utilization=_share(one.info.get("gpu_memory_utilization")),
        sleeping=None if awake is None else awake == 0.0,
        connector=one.connector,
        http_requests=process.get(names.HTTP),
        process_start_time_seconds=process.get(names.START, created),
        resident_memory_bytes=process.get(names.MEMORY),
        problems=problems,
        **fields,
    )


_FLAG = {"True": True, "true": True, "False": False, "false": False}


def _problems(
    fields: Mapping[str, float | None], one: EngineLayout, pool: Pool
) -> Iterable[Problem]:
    usage = _ratio(fields.get("usage_ratio"))
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
    elif pool.blocks is None:
        yield Problem(
            "pool_size_unknown",
            "num_gpu_blocks on the page is missing or wrong, so usage stays a ratio for now: "
            "set num_gpu_blocks for this target, or wait until enough different values were seen",
        )
    lost = [key for key in one.fields if fields.get(key) is None]
    if lost:
        yield Problem("not_finite", f"{lost[0]} is NaN or infinite: it is left out this time")


def _share(text: str | None) -> float | None:
    try:
        share = number((text or "").encode())
    except ValueError:
        return None
    return share if 0.0 < share <= 1.0 else None


def _ratio(usage: float | None) -> float | None:
    """Forgive the last bit: 1.0000001 is a full pool."""
    return 1.0 if usage is not None and 1.0 < usage <= 1.0 + 1e-6 else usage


def _pool_tokens(info: Mapping[str, str], pool: Pool, block_size: int | None) -> int | None:
    """Token capacity; for hybrid models it is not blocks times block size, so the label wins."""
    if (tokens := integer(info.get("kv_cache_size_tokens"))) is not None:
        return tokens
    return pool.blocks * block_size if pool.blocks is not None and block_size else None
