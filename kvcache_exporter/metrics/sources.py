"""Whether the GPU sources answer, and for how many GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.metrics._metric import Metric, Row, metric
from kvcache_exporter.model import GpuSourceReading


def _problems(source: GpuSourceReading) -> Iterable[Row]:
    found = (source.problem, *(gpu.problem for gpu in source.gpus))
    codes = {problem.code for problem in found if problem is not None}
    return [((("problem", code),), 1.0) for code in sorted(codes)]


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
    Metric(
        "kvcache_gpu_source_problem",
        "1 for each thing wrong with a source or its GPUs now; the status page says it in words.",
        _problems,
        ("problem",),
    ),
)
