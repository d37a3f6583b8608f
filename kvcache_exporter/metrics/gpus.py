"""Each GPU once, as the source that is the truth for it sees it."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.metrics._metric import Metric, Row, metric
from kvcache_exporter.model import GpuReading


def _gpu_info(gpu: GpuReading) -> Iterable[Row]:
    named = {
        "index": gpu.index,
        "model": gpu.model,
        "source": gpu.source,
        "driver_version": gpu.driver_version,
    }
    yield tuple((k, "" if v is None else str(v)) for k, v in named.items()), 1.0


METRICS: tuple[Metric[GpuReading], ...] = (
    Metric(
        "kvcache_gpu_info",
        "Always 1; what a GPU is and who told us.",
        _gpu_info,
        ("index", "model", "source", "driver_version"),
    ),
    metric(
        "kvcache_gpu_memory_total_bytes",
        "GPU memory in all (NVML total, DCGM_FI_DEV_FB_TOTAL).",
        lambda g: g.total_bytes,
    ),
    metric(
        "kvcache_gpu_memory_used_bytes",
        "GPU memory in use (NVML used v2, DCGM_FI_DEV_FB_USED); flat whatever vLLM's pool does.",
        lambda g: g.used_bytes,
    ),
    metric(
        "kvcache_gpu_memory_reserved_bytes",
        "GPU memory reserved by the driver (NVML reserved v2, DCGM_FI_DEV_FB_RESERVED).",
        lambda g: g.reserved_bytes,
    ),
    metric(
        "kvcache_gpu_memory_free_bytes",
        "GPU memory free (NVML free, DCGM_FI_DEV_FB_FREE).",
        lambda g: g.free_bytes,
    ),
)
