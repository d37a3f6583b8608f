"""Memory that no pool explains."""

from __future__ import annotations

from grafana import frame
from grafana.looks import BLUE, ORANGE, Json, steps
from grafana.panels import lines
from grafana.queries import Query, gpu, worst


def section(thresholds: Json) -> Json:
    """Make this part of the dashboard."""
    return frame.section(
        "All GPUs: what moves outside the pools",
        lines(
            "Growth outside the pool since warm-up",
            "Memory that is neither weights nor pool, the 5 highest GPUs. The pool does not grow, "
            "so a line that rises for hours is a leak outside of it.",
            Query(worst(gpu("kvcache_gpu_outside_pool_bytes"), "uuid"), "{{uuid}}"),
            unit="bytes",
            size=(12, 7),
            no_value="none, or nothing to compare yet",
        ),
        lines(
            "Memory held by no live engine",
            "The 5 highest GPUs; the line is where it becomes a ticket.",
            Query(worst(gpu("kvcache_gpu_unowned_bytes"), "uuid"), "{{uuid}}"),
            unit="bytes",
            size=(12, 7),
            no_value="none, or the processes are not known",
            limits=steps(BLUE, (thresholds["unowned_gpu_bytes"], ORANGE)),
        ),
    )
