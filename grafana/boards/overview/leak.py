"""The engines that lose most."""

from __future__ import annotations

from grafana import frame
from grafana.looks import Json
from grafana.panels import FLEET_POINTS, lines
from grafana.queries import ENGINE_LEGEND, Query, fleet, worst


def section(_: Json) -> Json:
    """Make this part of the dashboard."""
    return frame.section(
        "Is it a leak",
        lines(
            "Blocks proven to be owned by nobody",
            "Lower bound of orphaned blocks, the 5 highest engines above zero. Proof, no estimate.",
            Query(worst(f"{fleet('kvcache_orphaned_blocks_low')}"), ENGINE_LEGEND),
            unit="locale",
            no_value="none",
            size=(8, 12),
            points=FLEET_POINTS,
        ),
        lines(
            "Free blocks lost per hour",
            "Load-independent loss of free blocks, the 5 highest engines above zero. A healthy "
            "engine stays near zero, however busy it is.",
            Query(worst(f"-3600 * {fleet('kvcache_free_blocks_slope_per_second')}"), ENGINE_LEGEND),
            unit="locale",
            no_value="none lost, or not known yet",
            size=(8, 12),
            points=FLEET_POINTS,
        ),
        lines(
            "Used blocks at the last idle moment",
            "Idle floor as a share of the pool, the 5 highest engines. What is used while nobody "
            "runs or waits is held by nobody, or by a transfer that may still end.",
            Query(
                worst(f"{fleet('kvcache_idle_floor_blocks')} / {fleet('kvcache_pool_blocks')}"),
                ENGINE_LEGEND,
            ),
            unit="percentunit",
            no_value="all pools were empty at idle, or nobody was idle",
            size=(8, 12),
            points=FLEET_POINTS,
        ),
    )
