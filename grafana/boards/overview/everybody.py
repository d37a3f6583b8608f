"""Everybody, for looking up one engine."""

from __future__ import annotations

from grafana import frame
from grafana.frame import engine_link
from grafana.looks import Json, states_by_name, usage
from grafana.panels import by_name, coloured, on_colour, table
from grafana.queries import FLEET_USAGE, fleet, rows


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    return frame.section("All engines", _table(thresholds), collapsed=True)


def _table(thresholds: Json) -> Json:
    verdict = fleet("kvcache_verdict", "", "state", only="== 1")
    return table(
        "All engines",
        "Every engine of the choice above, at most a thousand. Click a target to open its engine.",
        rows(verdict),
        rows(fleet("kvcache_engine_info", "", "model_name", "vllm_version")),
        rows(FLEET_USAGE),
        rows(fleet("kvcache_requests", 'state="running"')),
        rows(fleet("kvcache_completions_per_second")),
        columns={
            "cluster": "Cluster",
            "target": "Target",
            "engine": "Engine",
            "model_name": "Model",
            "vllm_version": "vLLM",
            "state": "State",
            "Value #C": "Blocks used",
            "Value #D": "Running",
            "Value #E": "Completions / s",
        },
        hidden=("Value #A", "Value #B"),
        limit=1000,
        sort="Blocks used",
        size=(24, 12),
        overrides=(
            by_name("Target", links=engine_link("data.fields")),
            on_colour("State", mappings=states_by_name()),
            coloured("Blocks used", unit="percentunit", decimals=1, thresholds=usage(thresholds)),
            by_name("Completions / s", unit="reqps", decimals=2),
        ),
    )
