"""Whose the blocks are, counted inside the engine."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BLUE, GREY, ORANGE, PINK, PURPLE, SKY, STEEL, VERMILION, YELLOW, Json
from grafana.panels import limit, lines, painted
from grafana.queries import Query, engine

NOT_INSTALLED = "no audit inside this engine (docs/audit.md)"
COLOURS = {
    "orphaned": VERMILION,
    "ghost": PINK,
    "running": BLUE,
    "waiting": ORANGE,
    "streaming": YELLOW,
    "remote_load": PURPLE,
    "finished_delayed": "#FADE2A",
    "connector_pinned": "#8F3BB8",
    "parked": "#D44FD4",
    "set_aside": "#7B8087",
    "cached": SKY,
    "free": STEEL,
}


def section(_: Json) -> Json:
    """Make this part of the dashboard."""
    blocks = "kvcache_audit_{}_blocks"
    return frame.section(
        "Inside the engine",
        lines(
            "Owners of the blocks, against the pool",
            "Every block by who holds it, exact, stacked up to the pool. Orphaned blocks are in "
            "nobody's table, ghosts belong to requests that are gone: both should be nothing.",
            Query(engine("kvcache_pool_blocks"), "Pool"),
            Query(engine("kvcache_audit_blocks", by="owner"), "{{owner}}"),
            unit="locale",
            size=(24, 12),
            stacked=True,
            fill=40,
            no_value=NOT_INSTALLED,
            overrides=(limit("Pool"), *(painted(*look) for look in COLOURS.items())),
        ),
        lines(
            "Lost blocks, by count",
            "Blocks that stayed nobody's for longer than any free may lag. Any of them is a leak. "
            "Free and in use at once: the engine's own books are wrong.",
            Query(engine(blocks.format("settled_orphaned")), "Orphaned"),
            Query(engine(blocks.format("settled_ghost")), "Of requests long gone"),
            Query(engine(blocks.format("double_booked")), "Free and in use at once"),
            Query(engine("kvcache_audit_orphaned_after_blocks", by="event"), "after {{event}}"),
            unit="locale",
            size=(8, 9),
            no_value=NOT_INSTALLED,
            overrides=(painted("Orphaned", VERMILION), painted("Of requests long gone", PINK)),
        ),
        lines(
            "Requests inside the engine",
            "By what they are to their blocks: more classes than vLLM's page tells.",
            Query(engine("kvcache_audit_requests", by="owner"), "{{owner}}"),
            unit="none",
            size=(8, 9),
            no_value=NOT_INSTALLED,
        ),
        lines(
            "Oldest request of each class",
            "A class whose oldest member ages with the clock holds blocks that nobody comes for. "
            "The count itself should be seconds old; no line: it does not answer.",
            Query(engine("kvcache_audit_oldest_request_seconds", by="owner"), "{{owner}}"),
            Query(f"{engine('kvcache_audit_age_seconds')} / {engine('kvcache_audit_up')}", "count"),
            unit="s",
            size=(8, 9),
            no_value=NOT_INSTALLED,
            overrides=(painted("count", GREY, dashed=True),),
        ),
        collapsed=True,
    )
