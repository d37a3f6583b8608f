"""Whether the cycles end, and in time."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BLUE, ORANGE, VERMILION, Json, steps
from grafana.panels import lines
from grafana.queries import Query, exporter


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    duration = exporter("kvcache_exporter_cycle_duration_seconds")
    age = f"time() - {exporter('kvcache_exporter_cycle_timestamp_seconds')}"
    return frame.section(
        "Does each cycle end in time",
        lines(
            "Duration of a cycle",
            "Scraping, reading GPUs and judging, all targets together. The line is the default "
            "interval.",
            Query(f"max by (instance) ({duration})", "{{instance}}"),
            unit="s",
            limits=steps(BLUE, (thresholds["cycle_slow_seconds"], ORANGE)),
        ),
        lines(
            "Age of the newest cycle",
            "It grows by a second a second while an exporter is stuck. The line is the alert's.",
            Query(f"max by (instance) ({age})", "{{instance}}"),
            unit="s",
            limits=steps(BLUE, (thresholds["cycle_stale_seconds"], VERMILION)),
        ),
    )
