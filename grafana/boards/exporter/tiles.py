"""The exporters in numbers."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BAD_ABOVE_0, BLUE, NONE, ORANGE, VERMILION, Json, steps, words
from grafana.panels import stat
from grafana.queries import TARGET_KEY, exporter, now


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    up = f"max by ({TARGET_KEY}) ({exporter('kvcache_target_up')})"
    return frame.section(
        "",
        stat(
            "Exporters",
            "Exporters that Prometheus can scrape.",
            now(f"count({exporter('kvcache_exporter_targets')})"),
            unit="none",
            width=4,
            no_value="none scraped",
        ),
        stat(
            "Last cycle ended",
            "Age of the oldest newest cycle. Red from where it is an alert: older values are "
            "history, not state.",
            now(f"max(time() - {exporter('kvcache_exporter_cycle_timestamp_seconds')})"),
            unit="s",
            decimals=0,
            width=4,
            no_value="none scraped",
            thresholds=steps(BLUE, (thresholds["cycle_stale_seconds"], VERMILION)),
        ),
        stat(
            "Longest cycle",
            "Duration of the last cycle of the slowest exporter. Orange from where the next one "
            "falls out.",
            now(f"max({exporter('kvcache_exporter_cycle_duration_seconds')})"),
            unit="s",
            decimals=2,
            width=4,
            thresholds=steps(BLUE, (thresholds["cycle_slow_seconds"], ORANGE)),
        ),
        stat(
            "Configuration",
            "Whether the last reload was taken; after a refused one the old stays in force.",
            now(f"min({exporter('kvcache_exporter_config_last_reload_successful')})"),
            unit="none",
            width=4,
            mappings=words({0: ("reload refused", VERMILION), 1: ("in force", BLUE)}),
        ),
        stat(
            "Targets",
            "Targets known to these exporters.",
            now(f"sum({exporter('kvcache_exporter_targets')})"),
            unit="none",
            width=4,
        ),
        stat(
            "Targets down",
            "Targets whose last scrape gave no vLLM series.",
            now(f"count({up}) - sum({up})"),
            unit="none",
            width=4,
            mappings=NONE,
            thresholds=BAD_ABOVE_0,
        ),
    )
