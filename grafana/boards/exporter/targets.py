"""Whether the targets answer."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BLUE, Json
from grafana.panels import FLEET_POINTS, lines, painted
from grafana.queries import TARGET_KEY, Query, exporter, worst


def section(_: Json) -> Json:
    """Make this part of the dashboard."""
    up = _targets(exporter("kvcache_target_up"))
    failures = exporter("kvcache_target_scrape_failures_total")
    duration = _targets(exporter("kvcache_target_scrape_duration_seconds"))
    silence = _targets(f"time() - {exporter('kvcache_target_last_success_timestamp_seconds')}")
    problems = _targets(exporter("kvcache_target_problem"), ", problem")
    own = exporter("kvcache_exporter_problem")
    return frame.section(
        "Do the targets answer",
        lines(
            "Targets",
            "Known targets, and how many of them answer.",
            Query(f"count({up})", "Known"),
            Query(f"sum({up})", "Answering"),
            unit="none",
            size=(8, 9),
            decimals=0,
            overrides=(painted("Known", BLUE, dashed=True), painted("Answering", BLUE)),
        ),
        lines(
            "Failed scrapes by reason",
            "Scrapes a second that gave no vLLM series.",
            Query(f"sum by (reason) (rate({failures}[$__rate_interval]))", "{{reason}}"),
            unit="cps",
            size=(8, 9),
            no_value="none failed",
        ),
        lines(
            "Targets by problem",
            "What keeps targets from being found, read or judged.",
            Query(f"sum by (problem) ({problems})", "{{problem}}"),
            Query(f"sum by (problem) ({own})", "{{problem}} (of the exporter itself)"),
            unit="none",
            size=(8, 9),
            decimals=0,
            no_value="no problems",
        ),
        lines(
            "Slowest targets",
            "Time from asking to having the whole answer, the 5 slowest targets.",
            Query(worst(duration, TARGET_KEY), "{{target}}"),
            unit="s",
            points=FLEET_POINTS,
        ),
        lines(
            "Longest without an answer",
            "Age of the last scrape that gave vLLM series, the 5 oldest targets.",
            Query(worst(silence, TARGET_KEY), "{{target}}"),
            unit="s",
            points=FLEET_POINTS,
        ),
    )


def _targets(expr: str, more: str = "") -> str:
    return f"max by ({TARGET_KEY}{more}) ({expr})"
