"""The engines that have most to do."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BLUE, ORANGE, Json, preemptions, steps, usage
from grafana.panels import FLEET_POINTS, lines
from grafana.queries import ENGINE_LEGEND, FLEET_USAGE, Query, fleet, worst


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    drop = f"{fleet('kvcache_prefix_hit_ratio_baseline')} - {fleet('kvcache_prefix_hit_ratio')}"
    return frame.section(
        "Is it load, or the cache",
        lines(
            "Blocks in use",
            "Share of the pool in use, the 5 highest engines. High usage alone is load.",
            Query(worst(FLEET_USAGE), ENGINE_LEGEND),
            unit="percentunit",
            max=1,
            limits=usage(thresholds),
            size=(8, 12),
            points=FLEET_POINTS,
        ),
        lines(
            "Preemptions per completed request",
            "The 5 highest engines above zero. Above the upper line an engine redoes more than it "
            "finishes.",
            Query(worst(fleet("kvcache_preemptions_per_completion_ratio")), ENGINE_LEGEND),
            unit="none",
            decimals=2,
            no_value="none",
            limits=preemptions(thresholds),
            size=(8, 12),
            points=FLEET_POINTS,
        ),
        lines(
            "Prefix hit ratio below its baseline",
            "Points by which the hit ratio is below what is usual at this time of day, the 5 "
            "largest. From the line on the judge may call it a drift.",
            Query(worst(drop), ENGINE_LEGEND),
            unit="percentunit",
            limits=steps(BLUE, (thresholds["hit_ratio_drift_ratio"], ORANGE)),
            size=(8, 12),
            points=FLEET_POINTS,
        ),
    )
