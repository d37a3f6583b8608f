"""The verdict in words and numbers."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BLUE, NONE, ORANGE, VERMILION, Json, full_in, states_by_code, steps, words
from grafana.panels import stat
from grafana.queries import ENGINE, engine, now, state_code


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    return frame.section(
        "",
        stat(
            "Verdict",
            "The state this engine is in; exactly one at a time.",
            now(state_code(ENGINE)),
            unit="none",
            width=4,
            mappings=states_by_code(),
        ),
        stat(
            "For",
            "How long this state has held.",
            now(f"time() - {engine('kvcache_verdict_since_timestamp_seconds')}"),
            unit="s",
            decimals=1,
            width=3,
        ),
        stat(
            "Confidence",
            "How sure the verdict is.",
            now(engine("kvcache_verdict_confidence_ratio")),
            unit="percentunit",
            decimals=0,
            width=3,
        ),
        stat(
            "Leak established",
            "Stays yes while the engine is saturated or stalled by its leak.",
            now(engine("kvcache_leak_active")),
            unit="none",
            width=3,
            mappings=words({0: ("no", BLUE), 1: ("yes", VERMILION)}),
        ),
        stat(
            "Orphaned, proven",
            "Lower bound of the blocks that nobody owns and nobody will give back.",
            now(engine("kvcache_orphaned_blocks_low")),
            unit="locale",
            width=3,
            mappings=NONE,
            thresholds=steps(BLUE, (1, VERMILION)),
        ),
        stat(
            "Pool full in",
            "At the present slope. Orange and red are the limits of the ticket and of the page.",
            now(f"{engine('kvcache_exhaustion_timestamp_seconds')} - time()"),
            unit="s",
            decimals=1,
            width=4,
            no_value="not in sight",
            thresholds=full_in(thresholds),
        ),
        stat(
            "Blocks lost per event",
            "What the loss goes with best: blocks for each such event.",
            now(engine("kvcache_blocks_lost_per_event", by="event"), "per {{event}}"),
            unit="none",
            decimals=2,
            width=4,
            text_mode="value_and_name",
            no_value="no correlate",
            thresholds=steps(BLUE, (0.01, ORANGE)),
        ),
    )
