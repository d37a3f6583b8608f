"""Whether the GPU sources answer, and for how many GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvcache_exporter.metrics._metric import Metric, Row, metric
from kvcache_exporter.model import GpuSourceReading


def joined(sources: Iterable[GpuSourceReading]) -> tuple[GpuSourceReading, ...]:
    """Make one of all sources with one name, such as several DCGM exporters: up if all are."""
    found: dict[str, GpuSourceReading] = {}
    for one in sources:
        known = found.get(one.source)
        found[one.source] = one if known is None else _both(known, one)
    return tuple(found.values())


def _both(one: GpuSourceReading, other: GpuSourceReading) -> GpuSourceReading:
    return replace(
        one,
        up=one.up and other.up,
        gpus=one.gpus + other.gpus,
        expected=_sum(one.expected, other.expected),
        seen=_sum(one.seen, other.seen),
        problem=one.problem or other.problem,
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


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
