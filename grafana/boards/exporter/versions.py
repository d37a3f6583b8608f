"""Which exporters there are."""

from __future__ import annotations

from grafana import frame
from grafana.looks import Json
from grafana.panels import by_name, table
from grafana.queries import exporter, rows


def section(_: Json) -> Json:
    """Make this part of the dashboard."""
    return frame.section("Which version runs where", _table())


def _table() -> Json:
    by = "by (instance)"
    return table(
        "Exporters",
        "Version, Python and number of targets of each exporter.",
        rows(f"max by (instance, version, python) ({exporter('kvcache_exporter_build_info')})"),
        rows(f"max {by} ({exporter('kvcache_exporter_targets')})"),
        rows(f"max {by} ({exporter('kvcache_exporter_cycle_duration_seconds')})"),
        columns={
            "instance": "Instance",
            "version": "Version",
            "python": "Python",
            "Value #B": "Targets",
            "Value #C": "Last cycle",
        },
        hidden=("Value #A",),
        size=(24, 5),
        overrides=(by_name("Last cycle", unit="s", decimals=2),),
    )
