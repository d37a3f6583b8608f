"""What is true beside the states, and what keeps targets from being judged."""

from __future__ import annotations

from grafana import frame
from grafana.frame import engine_link
from grafana.looks import Json
from grafana.panels import by_name, table
from grafana.queries import TARGET_KEY, fleet, fleet_targets, rows


def section(_: Json) -> Json:
    """Make this part of the dashboard."""
    return frame.section(
        "What else was found",
        table(
            "Findings beside the state",
            "What is true of an engine now, whatever its state: a drifting hit ratio, growth "
            "outside the pool, a restart. Empty: nothing was found.",
            rows(f"{fleet('kvcache_finding', '', 'finding')} == 1"),
            columns={
                "cluster": "Cluster",
                "target": "Target",
                "engine": "Engine",
                "finding": "Finding",
            },
            hidden=("Value",),
            no_value="nothing was found",
            overrides=(by_name("Target", links=engine_link("data.fields")),),
            size=(12, 8),
        ),
        table(
            "Problems of targets",
            "What keeps a target from being read or judged. The status page of the exporter says "
            "each in words, with what to do next. Empty: all can be read.",
            rows(f"{fleet_targets('kvcache_target_problem', '', 'problem')} == 1"),
            rows(
                f"(time() - {fleet_targets('kvcache_target_last_success_timestamp_seconds')}) and "
                f"on ({TARGET_KEY}) {fleet_targets('kvcache_target_problem')}"
            ),
            columns={
                "cluster": "Cluster",
                "target": "Target",
                "problem": "Problem",
                "Value #B": "Last success",
            },
            hidden=("Value #A",),
            no_value="all targets can be read",
            overrides=(by_name("Last success", unit="s", decimals=0),),
            size=(12, 8),
        ),
    )
