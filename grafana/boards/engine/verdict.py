"""The verdict over time, and what was found beside it."""

from __future__ import annotations

from grafana import frame
from grafana.looks import FOUND, Json, states_by_code
from grafana.panels import lanes
from grafana.queries import ENGINE, Query, engine, state_code, target


def section(_: Json) -> Json:
    """Make this part of the dashboard."""
    return frame.section(
        "Verdict",
        lanes(
            "Verdict over time",
            "The state, written into the lane; a gap is a time without a verdict.",
            Query(state_code(ENGINE), "verdict"),
            size=(24, 4),
            mappings=states_by_code(),
        ),
        lanes(
            "Reasons beside the state",
            "Findings that can be true in any state. `kvcache-exporter explain URL` and the "
            "exporter's status page say every reason in words, with its numbers.",
            Query(f"{engine('kvcache_finding', by='finding')} > 0", "{{finding}}"),
            size=(12, 5),
            no_value="none in this time",
            mappings=FOUND,
        ),
        lanes(
            "Problems of the target",
            "What keeps this target from being read or judged. Nothing here: it can be read.",
            Query(f"1 - {target('kvcache_target_up')} > 0", "does not answer"),
            Query(target("kvcache_target_problem", by="problem"), "{{problem}}"),
            size=(12, 5),
            no_value="none in this time",
            mappings=FOUND,
        ),
    )
