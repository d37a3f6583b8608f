"""What each engine says of itself, and what the judge says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvcache_exporter.metrics._metric import Metric, Row, metric
from kvcache_exporter.model import EngineReading, EngineStatus, FindingKind, Judgement, State


def _read(
    name: str, help_text: str, value: Callable[[EngineReading], float | None]
) -> Metric[EngineStatus]:
    return metric(name, help_text, lambda one: value(one.reading) if one.reading else None)


def _judged(
    name: str, help_text: str, value: Callable[[Judgement], float | None]
) -> Metric[EngineStatus]:
    return metric(name, help_text, lambda one: value(one.judgement))


def _free(reading: EngineReading) -> float | None:
    if reading.pool_blocks is None or reading.used_blocks is None:
        return None
    return reading.pool_blocks - reading.used_blocks


def _used_bytes(reading: EngineReading) -> float | None:
    if not reading.pool_blocks or reading.used_blocks is None or reading.pool_bytes is None:
        return None
    return reading.pool_bytes * reading.used_blocks / reading.pool_blocks


def _requests(one: EngineStatus) -> Iterable[Row]:
    if one.reading is not None:
        yield (("state", "running"),), one.reading.running
        yield (("state", "waiting"),), one.reading.waiting


def _engine_info(one: EngineStatus) -> Iterable[Row]:
    reading = one.reading
    if reading is not None:
        named = {
            "model_name": reading.model_name,
            "vllm_version": one.vllm_version,
            "block_size": reading.block_size_tokens,
            "cache_dtype": reading.cache_dtype,
            "prefix_caching": reading.prefix_caching,
            "naming": reading.naming,
        }
        # A label of the operator's that is named like one of ours would stand twice.
        taken = {"namespace", "pod", *named}
        extra = tuple(pair for pair in one.labels if pair[0] not in taken)
        yield tuple((k, "" if v is None else str(v)) for k, v in named.items()) + extra, 1.0


def _hit_ratio(value: Callable[[Judgement], float | None]) -> Callable[[EngineStatus], list[Row]]:
    def rows(one: EngineStatus) -> list[Row]:
        seconds = one.judgement.hit_ratio_window_seconds
        window = "" if seconds is None else f"{seconds:g}s"
        return [((("window", window),), value(one.judgement))]

    return rows


def _drift(judgement: Judgement) -> float | None:
    return None if judgement.hit_ratio_drift is None else float(judgement.hit_ratio_drift)


METRICS: tuple[Metric[EngineStatus], ...] = (
    Metric(
        "kvcache_engine_info",
        "Always 1; what an engine is, from vllm:cache_config_info and /version.",
        _engine_info,
        ("model_name", "vllm_version", "block_size", "cache_dtype", "prefix_caching", "naming"),
    ),
    _read(
        "kvcache_pool_blocks",
        "KV blocks that can be used, from num_gpu_blocks of vllm:cache_config_info less the null "
        "block.",
        lambda r: r.pool_blocks,
    ),
    _read(
        "kvcache_used_blocks",
        "KV blocks in use, exact, from vllm:kv_cache_usage_perc and the pool size.",
        lambda r: r.used_blocks,
    ),
    _read("kvcache_free_blocks", "KV blocks free, cached and unreferenced ones included.", _free),
    _read(
        "kvcache_pool_tokens",
        "Tokens the pool can hold, from kv_cache_size_tokens of vllm:cache_config_info.",
        lambda r: r.pool_tokens,
    ),
    _read(
        "kvcache_pool_bytes",
        "Bytes of the pool, from kv_cache_memory_bytes of vllm:cache_config_info.",
        lambda r: r.pool_bytes,
    ),
    _read(
        "kvcache_used_bytes", "Bytes of the blocks in use, where pool bytes are known.", _used_bytes
    ),
    Metric(
        "kvcache_requests",
        "Requests in an engine, from vllm:num_requests_running and vllm:num_requests_waiting.",
        _requests,
        ("state",),
    ),
    _judged(
        "kvcache_idle_floor_blocks",
        "Used blocks at the last trustworthy idle moment.",
        lambda j: j.idle_floor_blocks,
    ),
    _judged(
        "kvcache_orphaned_blocks",
        "Estimate of blocks owned by nobody.",
        lambda j: j.orphaned_blocks,
    ),
    _judged(
        "kvcache_orphaned_blocks_low",
        "Proven lower bound of blocks owned by nobody.",
        lambda j: j.orphaned_blocks_low,
    ),
    _judged(
        "kvcache_free_blocks_slope_per_second",
        "Slope of free blocks with the load taken out; negative while leaking.",
        lambda j: j.free_slope_per_second,
    ),
    _judged(
        "kvcache_free_blocks_slope_low_per_second",
        "Lower end of the 95 % interval of the slope.",
        lambda j: j.free_slope_low_per_second,
    ),
    _judged(
        "kvcache_free_blocks_slope_high_per_second",
        "Upper end of the 95 % interval of the slope.",
        lambda j: j.free_slope_high_per_second,
    ),
    _judged(
        "kvcache_exhaustion_timestamp_seconds",
        "When the pool is full at this slope.",
        lambda j: j.exhaustion_time,
    ),
    _judged(
        "kvcache_exhaustion_earliest_timestamp_seconds",
        "When the pool is full at the fast end of the slope's interval.",
        lambda j: j.exhaustion_earliest_time,
    ),
    _judged(
        "kvcache_exhaustion_latest_timestamp_seconds",
        "When the pool is full at the slow end of the slope's interval.",
        lambda j: j.exhaustion_latest_time,
    ),
    Metric(
        "kvcache_prefix_hit_ratio",
        "Share of looked-up prompt tokens found in the prefix cache, from deltas of "
        "vllm:prefix_cache_hits_total and vllm:prefix_cache_queries_total.",
        _hit_ratio(lambda j: j.hit_ratio),
        ("window",),
    ),
    Metric(
        "kvcache_prefix_hit_ratio_baseline",
        "What the hit ratio usually is at this time of day.",
        _hit_ratio(lambda j: j.hit_ratio_baseline),
        ("window",),
    ),
    Metric(
        "kvcache_prefix_hit_ratio_drift",
        "1 while the hit ratio has drifted from its baseline.",
        _hit_ratio(_drift),
        ("window",),
    ),
    _judged(
        "kvcache_preemptions_per_completion_ratio",
        "Preemptions per completed request, from deltas of vllm:num_preemptions_total.",
        lambda j: j.preemptions_per_completion,
    ),
    _judged(
        "kvcache_completions_per_second",
        "Requests completed, from deltas of vllm:request_success_total.",
        lambda j: j.completions_per_second,
    ),
    Metric(
        "kvcache_verdict",
        "1 for the state an engine is in, 0 for all others.",
        lambda e: [((("state", s),), float(s is e.judgement.state)) for s in State],
        ("state",),
    ),
    _judged(
        "kvcache_verdict_since_timestamp_seconds", "Since when that state holds.", lambda j: j.since
    ),
    _judged(
        "kvcache_verdict_confidence_ratio",
        "How sure the verdict is, 0 to 1.",
        lambda j: j.confidence,
    ),
    _judged(
        "kvcache_leak_active",
        "1 while a leak is established, whatever else is wrong.",
        lambda j: float(j.leak_active),
    ),
    Metric(
        "kvcache_finding",
        "1 while a finding beside the state holds.",
        lambda e: [
            ((("finding", kind),), float(any(f.kind == kind for f in e.judgement.findings)))
            for kind in FindingKind
        ],
        ("finding",),
    ),
    metric(
        "kvcache_hold_seconds",
        "How long blocks may rightly outlive their request, by configuration or connector.",
        lambda e: e.hold_seconds if e.reading else None,
    ),
    Metric(
        "kvcache_blocks_lost_per_event",
        "Blocks lost for each event of the kind that explains the loss best.",
        lambda e: [((("event", k),), v) for k, v in e.judgement.blocks_lost_per_event],
        ("event",),
    ),
    Metric(
        "kvcache_engine_gpu_info",
        "Always 1; the bridge between an engine and its GPUs.",
        lambda e: [((("uuid", uuid),), 1.0) for uuid in e.gpu_uuids],
        ("uuid",),
    ),
    Metric(
        "kvcache_engine_gpu_memory_bytes",
        "GPU memory that the engine's own processes hold, from NVML and the process tree.",
        lambda e: [((("uuid", uuid),), float(size)) for uuid, size in e.gpu_bytes],
        ("uuid",),
    ),
)
