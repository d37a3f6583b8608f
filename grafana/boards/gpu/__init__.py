"""What does the driver show, and what does it not show of the pool behind it?"""

from __future__ import annotations

from grafana.boards.gpu import blind_spot, gpus, outside, sources, tiles
from grafana.frame import dashboard
from grafana.looks import Json
from grafana.variables import ALL_GPUS, ONE_ENGINE


def board(thresholds: Json) -> Json:
    """GPU memory beside KV blocks, on one time axis."""
    sections = (tiles, blind_spot, outside, gpus, sources)
    return dashboard(
        "kvcache-gpu",
        "KV cache / GPU blind spot",
        __doc__ or "",
        (*ONE_ENGINE, ALL_GPUS),
        [one.section(thresholds) for one in sections],
    )
