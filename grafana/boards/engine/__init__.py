"""What is wrong with this engine, what proves it, and how long does its pool last?"""

from __future__ import annotations

from grafana.boards.engine import beside, blocks, inside, load, tiles, verdict
from grafana.frame import dashboard
from grafana.looks import Json
from grafana.variables import GPUS_OF_ENGINE, ONE_ENGINE


def board(thresholds: Json) -> Json:
    """One engine, from the verdict down to the evidence."""
    sections = (tiles, verdict, blocks, inside, load, beside)
    return dashboard(
        "kvcache-engine",
        "KV cache / Engine",
        __doc__ or "",
        (*ONE_ENGINE, GPUS_OF_ENGINE),
        [one.section(thresholds) for one in sections],
    )
