"""Whether the GPU sources answer, and for how many GPUs."""

from __future__ import annotations

from kvcache_exporter.metrics._metric import Metric, metric
from kvcache_exporter.model import GpuSourceReading

METRICS: tuple[Metric[GpuSourceReading], ...] = (
    metric(
        "kvcache_gpu_source_up",
        "1 if this source answered in the last cycle.",
        lambda s: float(s.up),
    ),
    metric(
        "kvcache_gpus_expected",
        "Most GPUs this source has reported at once.",
        lambda s: s.expected,
    ),
    metric(
        "kvcache_gpus_seen",
        "GPUs this source reports now, MIG slices not counted.",
        lambda s: s.seen if s.seen is not None or not s.up else len(s.gpus),
    ),
)
