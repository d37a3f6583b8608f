"""The catalogue: every metric we expose, where its value stands, and where that comes from.

One entry is one family. ``value`` returns None for "not known", and what is not known is not
exposed. ``rows`` serves families with labels of their own.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kvcache_exporter import __version__
from kvcache_exporter.model import (
    EngineReading,
    EngineStatus,
    FindingKind,
    GpuReading,
    GpuSourceReading,
    Judgement,
    Snapshot,
    State,
    TargetStatus,
)

T = TypeVar("T")
Labels = tuple[tuple[str, str], ...]
Row = tuple[Labels, float | None]


@dataclass(frozen=True, slots=True)
class Metric(Generic[T]):
    """One family: its name, its HELP text and how to get its rows from one *T*."""

    name: str
    help: str
    rows: Callable[[T], Iterable[Row]]
    labels: tuple[str, ...] = ()
    """Labels beyond those that say which *T* it is."""
    kind: str = "gauge"


def _metric(name: str, help_text: str, value: Callable[[T], float | None]) -> Metric[T]:
    return Metric(name, help_text, lambda one: (((), value(one)),))


def _read(
    name: str, help_text: str, value: Callable[[EngineReading], float | None]
) -> Metric[EngineStatus]:
    return _metric(name, help_text, lambda one: value(one.reading) if one.reading else None)


def _judged(
    name: str, help_text: str, value: Callable[[Judgement], float | None]
) -> Metric[EngineStatus]:
    return _metric(name, help_text, lambda one: value(one.judgement))


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
        extra = tuple(pair for pair in one.labels if pair[0] not in ("namespace", "pod"))
        yield tuple((k, "" if v is None else str(v)) for k, v in named.items()) + extra, 1.0


def _hit_ratio(value: Callable[[Judgement], float | None]) -> Callable[[EngineStatus], list[Row]]:
    def rows(one: EngineStatus) -> list[Row]:
        seconds = one.judgement.hit_ratio_window_seconds
        window = "" if seconds is None else f"{seconds:g}s"
        return [((("window", window),), value(one.judgement))]

    return rows


def _drift(judgement: Judgement) -> float | None:
    return None if judgement.hit_ratio_drift is None else float(judgement.hit_ratio_drift)


def _gpu_info(gpu: GpuReading) -> Iterable[Row]:
    named = {
        "index": gpu.index,
        "model": gpu.model,
        "source": gpu.source,
        "driver_version": gpu.driver_version,
    }
    yield tuple((k, "" if v is None else str(v)) for k, v in named.items()), 1.0


TARGET_METRICS: tuple[Metric[TargetStatus], ...] = (
    _metric("kvcache_target_up", "1 if the last scrape gave vLLM series.", lambda t: float(t.up)),
    _metric(
        "kvcache_target_scrape_duration_seconds",
        "Time from asking a target to having its whole answer.",
        lambda t: t.duration_seconds,
    ),
    _metric(
        "kvcache_target_last_success_timestamp_seconds",
        "When a scrape of this target last gave vLLM series.",
        lambda t: t.last_success_time,
    ),
    Metric(
        "kvcache_target_problem",
        "1 for each thing wrong with a target now; the log and the status page say it in words.",
        lambda t: [((("problem", code),), 1.0) for code in sorted({p.code for p in t.problems})],
        ("problem",),
    ),
    Metric(
        "kvcache_target_scrape_failures_total",
        "Scrapes of a target that gave no vLLM series, by reason.",
        lambda t: [((("reason", reason),), float(count)) for reason, count in t.failures],
        ("reason",),
        "counter",
    ),
)

ENGINE_METRICS: tuple[Metric[EngineStatus], ...] = (
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
)

GPU_METRICS: tuple[Metric[GpuReading], ...] = (
    Metric(
        "kvcache_gpu_info",
        "Always 1; what a GPU is and who told us.",
        _gpu_info,
        ("index", "model", "source", "driver_version"),
    ),
    _metric(
        "kvcache_gpu_memory_total_bytes",
        "GPU memory in all (NVML total, DCGM_FI_DEV_FB_TOTAL).",
        lambda g: g.total_bytes,
    ),
    _metric(
        "kvcache_gpu_memory_used_bytes",
        "GPU memory in use (NVML used v2, DCGM_FI_DEV_FB_USED); flat whatever vLLM's pool does.",
        lambda g: g.used_bytes,
    ),
    _metric(
        "kvcache_gpu_memory_reserved_bytes",
        "GPU memory reserved by the driver (NVML reserved v2, DCGM_FI_DEV_FB_RESERVED).",
        lambda g: g.reserved_bytes,
    ),
    _metric(
        "kvcache_gpu_memory_free_bytes",
        "GPU memory free (NVML free, DCGM_FI_DEV_FB_FREE).",
        lambda g: g.free_bytes,
    ),
)

SOURCE_METRICS: tuple[Metric[GpuSourceReading], ...] = (
    _metric(
        "kvcache_gpu_source_up",
        "1 if this source answered in the last cycle.",
        lambda s: float(s.up),
    ),
    _metric(
        "kvcache_gpus_expected",
        "Most GPUs this source has reported at once.",
        lambda s: s.expected,
    ),
    _metric(
        "kvcache_gpus_seen",
        "GPUs this source reports now, MIG slices not counted.",
        lambda s: s.seen if s.seen is not None or not s.up else len(s.gpus),
    ),
)

EXPORTER_METRICS: tuple[Metric[Snapshot], ...] = (
    Metric(
        "kvcache_gpu_outside_pool_bytes",
        "Growth of GPU memory outside the KV pool since warm-up.",
        lambda s: [((("uuid", uuid),), value) for uuid, value in s.gpu_outside_pool_bytes],
        ("uuid",),
    ),
    Metric(
        "kvcache_gpu_unowned_bytes",
        "GPU memory held by no live engine.",
        lambda s: [((("uuid", uuid),), value) for uuid, value in s.gpu_unowned_bytes],
        ("uuid",),
    ),
    Metric(
        "kvcache_exporter_build_info",
        "Always 1; version of this exporter.",
        lambda s: [((("version", __version__), ("python", platform.python_version())), 1.0)],
        ("version", "python"),
    ),
    _metric(
        "kvcache_exporter_cycle_duration_seconds",
        "Time the last cycle took.",
        lambda s: s.cycle_duration_seconds,
    ),
    _metric(
        "kvcache_exporter_cycle_timestamp_seconds",
        "When the last cycle ended; it stands still when the exporter is stuck.",
        lambda s: s.time,
    ),
    _metric(
        "kvcache_exporter_config_last_reload_successful",
        "0 after a reload was refused; the old configuration stays in force.",
        lambda s: float(s.config_reload_ok),
    ),
    _metric("kvcache_exporter_targets", "Targets known to the exporter.", lambda s: len(s.targets)),
)
