"""Which engines are in trouble, why, and since when?"""

from __future__ import annotations

from grafana.boards.overview import everybody, findings, leak, load, tiles, trouble
from grafana.frame import dashboard
from grafana.looks import Json
from grafana.variables import MANY_TARGETS


def board(thresholds: Json) -> Json:
    """The entry point: what happens in the fleet, most urgent first."""
    sections = (tiles, trouble, leak, load, findings, everybody)
    return dashboard(
        "kvcache-overview",
        "KV cache / Fleet",
        __doc__ or "",
        MANY_TARGETS,
        [one.section(thresholds) for one in sections],
    )
