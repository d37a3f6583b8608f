"""The evidence for and against a leak."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BLUE, ORANGE, SKY, VERMILION, YELLOW, Json, full_in, steps
from grafana.panels import band, limit, lines, painted
from grafana.queries import Query, engine


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    slope = "kvcache_free_blocks_slope{}_per_second"
    return frame.section(
        "Blocks: is it a leak, and for how long does the pool last",
        lines(
            "Used blocks against the pool",
            "Used blocks go up and down with load; the idle floor and the orphaned blocks must "
            "not rise. The distance from used to pool is what requests can still get.",
            Query(engine("kvcache_pool_blocks"), "Pool"),
            Query(engine("kvcache_used_blocks"), "Used"),
            Query(engine("kvcache_idle_floor_blocks"), "Idle floor"),
            Query(engine("kvcache_orphaned_blocks"), "Orphaned, estimate"),
            Query(engine("kvcache_orphaned_blocks_low"), "Orphaned, proven"),
            unit="locale",
            size=(12, 12),
            overrides=(
                limit("Pool"),
                painted("Used", BLUE, custom__fillOpacity=10),
                painted("Idle floor", YELLOW),
                painted("Orphaned, estimate", ORANGE, dashed=True),
                painted("Orphaned, proven", VERMILION, custom__fillOpacity=25),
            ),
        ),
        lines(
            "Slope of free blocks, load taken out",
            "With its 95 % interval. While the whole band is below zero, blocks are being lost "
            "and load does not explain it.",
            Query(f"3600 * {engine(slope.format(''))}", "Slope"),
            Query(f"3600 * {engine(slope.format('_low'))}", "95 % low"),
            Query(f"3600 * {engine(slope.format('_high'))}", "95 % high"),
            unit="short",
            decimals=1,
            size=(12, 12),
            axis="blocks per hour",
            limits=steps(VERMILION, (0, BLUE)),
            overrides=(painted("Slope", BLUE), *band("95 % low", "95 % high", SKY)),
        ),
        lines(
            "Time until the pool is full",
            "At the slope, and at both ends of its interval. The lines are the limits of the "
            "page and of the ticket. No line: not in sight, or beyond the upper edge.",
            Query(f"{engine('kvcache_exhaustion_timestamp_seconds')} - time()", "Expected"),
            Query(
                f"{engine('kvcache_exhaustion_earliest_timestamp_seconds')} - time()", "Earliest"
            ),
            Query(f"{engine('kvcache_exhaustion_latest_timestamp_seconds')} - time()", "Latest"),
            unit="s",
            max=2 * thresholds["exhaustion_ticket_seconds"],
            size=(12, 9),
            no_value="not in sight",
            calcs=["lastNotNull", "min"],
            limits=full_in(thresholds),
            overrides=(painted("Expected", BLUE), *band("Earliest", "Latest", SKY)),
        ),
        lines(
            "Blocks lost per event",
            "For the kind of event that explains the loss best: a hint at the cause. No line: no "
            "loss, or no kind of event that goes with it.",
            Query(engine("kvcache_blocks_lost_per_event", by="event"), "per {{event}}"),
            unit="none",
            decimals=2,
            size=(12, 9),
            no_value="no correlate",
        ),
    )
