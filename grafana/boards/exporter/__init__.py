"""Can the verdicts be trusted: does the exporter itself do its work?"""

from __future__ import annotations

from grafana.boards.exporter import cycles, targets, tiles, versions
from grafana.frame import dashboard
from grafana.looks import Json
from grafana.variables import EXPORTERS


def board(thresholds: Json) -> Json:
    """The watcher, watched."""
    sections = (tiles, cycles, targets, versions)
    return dashboard(
        "kvcache-exporter",
        "KV cache / Exporter",
        __doc__ or "",
        EXPORTERS,
        [one.section(thresholds) for one in sections],
    )
