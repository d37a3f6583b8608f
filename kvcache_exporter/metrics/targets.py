"""What a scrape target looks like from outside."""

from __future__ import annotations

from kvcache_exporter.metrics._metric import Metric, metric
from kvcache_exporter.model import TargetStatus

METRICS: tuple[Metric[TargetStatus], ...] = (
    metric("kvcache_target_up", "1 if the last scrape gave vLLM series.", lambda t: float(t.up)),
    metric(
        "kvcache_target_scrape_duration_seconds",
        "Time from asking a target to having its whole answer.",
        lambda t: t.duration_seconds,
    ),
    metric(
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
