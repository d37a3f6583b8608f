"""Who is in trouble: the table to start from, and how it came to this."""

from __future__ import annotations

from grafana import frame
from grafana.frame import engine_link
from grafana.looks import (
    LEAK,
    STATE_LOOKS,
    UNKNOWN_IS_GREY,
    Json,
    full_in,
    preemptions,
    states_by_code,
    states_by_name,
    usage,
)
from grafana.panels import (
    FLEET_POINTS,
    by_name,
    coloured,
    lanes,
    lines,
    on_colour,
    painted,
    table,
)
from grafana.queries import (
    ENGINE_LEGEND,
    FLEET,
    FLEET_USAGE,
    NOT_OK,
    Query,
    fleet,
    in_trouble,
    least_often_ok,
    rows,
    state_code,
)


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    title = "Who is in trouble, why, and since when"
    return frame.section(title, _table(thresholds), *_history())


def _table(thresholds: Json) -> Json:
    verdict = fleet("kvcache_verdict", NOT_OK, "state", only="== 1")
    info = fleet("kvcache_engine_info", "", "model_name", "vllm_version")
    return table(
        "Engines in trouble",
        "Every engine whose state is neither OK nor still unknown, leaks first. Click a target to "
        "open its engine. Empty: nobody is in trouble.",
        rows(verdict),
        rows(in_trouble(info)),
        rows(in_trouble(f"time() - {fleet('kvcache_verdict_since_timestamp_seconds')}")),
        rows(in_trouble(fleet("kvcache_verdict_confidence_ratio"))),
        rows(in_trouble(fleet("kvcache_orphaned_blocks_low"))),
        rows(in_trouble(FLEET_USAGE)),
        rows(in_trouble(f"round(3600 * {fleet('kvcache_free_blocks_slope_per_second')}, 0.1)")),
        rows(in_trouble(f"{fleet('kvcache_exhaustion_timestamp_seconds')} - time()")),
        rows(in_trouble(fleet("kvcache_prefix_hit_ratio"))),
        rows(in_trouble(fleet("kvcache_preemptions_per_completion_ratio"))),
        rows(in_trouble(fleet("kvcache_requests", 'state="waiting"'))),
        rows(in_trouble(fleet("kvcache_leak_active"))),
        columns={
            "cluster": "Cluster",
            "target": "Target",
            "engine": "Engine",
            "model_name": "Model",
            "vllm_version": "vLLM",
            "state": "State",
            "Value #L": "Leak",
            "Value #C": "Since",
            "Value #D": "Confidence",
            "Value #E": "Orphaned",
            "Value #F": "Blocks used",
            "Value #G": "Free blocks / h",
            "Value #H": "Full in",
            "Value #I": "Hit ratio",
            "Value #J": "Preempt. / done",
            "Value #K": "Waiting",
        },
        hidden=("Value #A", "Value #B"),
        sort="Leak",
        size=(24, 8),
        no_value="nobody is in trouble",
        overrides=(
            by_name("Target", links=engine_link("data.fields"), custom__width=180),
            by_name("Engine", custom__width=65),
            by_name("vLLM", custom__width=70),
            on_colour("State", mappings=states_by_name(), custom__width=130),
            coloured("Leak", mappings=LEAK, custom__width=70),
            by_name("Since", unit="s", decimals=1, custom__width=90),
            by_name("Confidence", unit="percentunit", decimals=0, custom__width=90),
            by_name("Orphaned", unit="locale", custom__width=105),
            coloured(
                "Blocks used",
                unit="percentunit",
                decimals=1,
                thresholds=usage(thresholds),
                custom__width=100,
            ),
            by_name("Free blocks / h", unit="locale", decimals=1, custom__width=115),
            coloured(
                "Full in",
                unit="s",
                decimals=1,
                mappings=UNKNOWN_IS_GREY,
                thresholds=full_in(thresholds),
                custom__width=95,
            ),
            by_name("Hit ratio", unit="percentunit", decimals=1, custom__width=80),
            coloured(
                "Preempt. / done",
                decimals=2,
                thresholds=preemptions(thresholds),
                custom__width=125,
            ),
            by_name("Waiting", custom__width=75),
        ),
    )


def _history() -> list[Json]:
    return [
        lanes(
            "Verdicts of the 15 engines least often OK",
            "One lane an engine, the state written into it; a gap is a time without a verdict.",
            Query(least_often_ok(state_code(FLEET)), ENGINE_LEGEND),
            size=(16, 11),
            points=FLEET_POINTS,
            no_value="every engine was OK all the time",
            mappings=states_by_code(),
            links=engine_link("field.labels"),
        ),
        lines(
            "Engines by state",
            "How many engines are in each state. The whole fleet at once is rather a release or "
            "the load than one engine.",
            Query(_count('state="ok"'), "{{state}}"),
            Query(_count('state!="ok"'), "{{state}}"),
            unit="none",
            decimals=0,
            fill=60,
            stacked=True,
            calcs=["max"],
            size=(8, 11),
            points=FLEET_POINTS,
            overrides=tuple(
                painted(str(state), colour, displayName=text)
                for state, (text, colour) in STATE_LOOKS.items()
            ),
        ),
    ]


def _count(states: str) -> str:
    return f"count by (state) ({fleet('kvcache_verdict', states, 'state', only='== 1')})"
