"""The state of the fleet in eight numbers."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BAD_ABOVE_0, BLUE, NONE, ORANGE, Json, full_in, steps, usage
from grafana.panels import stat
from grafana.queries import fleet, fleet_targets, now


def _count_in(*states: str) -> str:
    matcher = f'state=~"{"|".join(states)}"'
    return f"sum({fleet('kvcache_verdict', matcher)})"


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    counted: Json = {"unit": "none", "width": 3, "mappings": NONE, "thresholds": BAD_ABOVE_0}
    up = fleet_targets("kvcache_target_up")
    return frame.section(
        "",
        stat(
            "Leaking",
            "Engines with an established leak, whatever else is wrong with them: blocks proven to "
            "be owned by nobody, or a loss of free blocks that load does not explain.",
            now(f"sum({fleet('kvcache_leak_active')})"),
            **counted,
        ),
        stat(
            "Leak suspected",
            "Engines that look like leaking, not yet long or clear enough to say so.",
            now(_count_in("leak_suspect")),
            **(counted | {"thresholds": steps(BLUE, (1, ORANGE))}),
        ),
        stat(
            "Not serving",
            "Engines that are stalled, whose gauges are frozen, or that give no data: a healthy "
            "/health says nothing about these.",
            now(_count_in("stalled", "stale", "no_data")),
            **counted,
        ),
        stat(
            "Short of room",
            "Engines that preempt more than they finish, or are full of work: load, not a leak.",
            now(_count_in("preemption_storm", "saturated")),
            **(counted | {"thresholds": steps(BLUE, (1, ORANGE))}),
        ),
        stat(
            "First pool full in",
            "Time until the first pool is full at the present load-independent slope. Orange and "
            "red are the limits of the ticket and of the page.",
            now(f"min({fleet('kvcache_exhaustion_timestamp_seconds')}) - time()"),
            unit="s",
            width=3,
            no_value="none in sight",
            decimals=1,
            thresholds=full_in(thresholds),
        ),
        stat(
            "Blocks in use",
            "Used blocks of all pools together. Cached blocks that nobody uses count as free.",
            now(f"sum({fleet('kvcache_used_blocks')}) / sum({fleet('kvcache_pool_blocks')})"),
            unit="percentunit",
            width=3,
            decimals=1,
            thresholds=usage(thresholds),
        ),
        stat(
            "Engines",
            "Engines that are watched.",
            now(f"count({fleet('kvcache_leak_active')})"),
            unit="none",
            width=3,
        ),
        stat(
            "Targets down",
            "Targets whose last scrape gave no vLLM series.",
            now(f"count({up}) - sum({up})"),
            **counted,
        ),
    )
