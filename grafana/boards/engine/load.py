"""What the engine has to do, and how its cache helps."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BLUE, GREY, ORANGE, YES_NO, Json, preemptions
from grafana.panels import lanes, lines, painted
from grafana.queries import Query, engine


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    return frame.section(
        "Load and cache",
        lines(
            "Requests",
            "Running and waiting. A queue in front of an engine that completes nothing is a stall.",
            Query(engine("kvcache_requests", 'state="running"'), "Running"),
            Query(engine("kvcache_requests", 'state="waiting"'), "Waiting"),
            unit="none",
            size=(8, 9),
            overrides=(painted("Running", BLUE), painted("Waiting", ORANGE)),
        ),
        lines(
            "Completed requests",
            "Zero while requests run and wait is what a stall looks like.",
            Query(engine("kvcache_completions_per_second"), "Completed"),
            unit="reqps",
            size=(8, 9),
            overrides=(painted("Completed", BLUE),),
        ),
        lines(
            "Preemptions per completed request",
            "Above the upper line the engine redoes more than it finishes.",
            Query(engine("kvcache_preemptions_per_completion_ratio"), "Preemptions"),
            unit="none",
            decimals=2,
            size=(8, 9),
            limits=preemptions(thresholds),
            overrides=(painted("Preemptions", BLUE),),
        ),
        lines(
            "Prefix hit ratio and its baseline",
            "Share of looked-up prompt tokens found in the cache, against what is usual at this "
            "time of day.",
            Query(engine("kvcache_prefix_hit_ratio"), "Hit ratio"),
            Query(engine("kvcache_prefix_hit_ratio_baseline"), "Usual"),
            unit="percentunit",
            max=1,
            size=(16, 9),
            overrides=(painted("Hit ratio", BLUE), painted("Usual", GREY, dashed=True)),
        ),
        lanes(
            "Hit ratio drifted",
            "Yes while the hit ratio is further below its baseline than chance explains; not "
            "judged without enough looked-up tokens.",
            Query(engine("kvcache_prefix_hit_ratio_drift"), "drift"),
            size=(8, 9),
            no_value="not judged",
            mappings=YES_NO,
        ),
    )
