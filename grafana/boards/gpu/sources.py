"""Whether the numbers of the GPUs arrive at all."""

from __future__ import annotations

from grafana import frame
from grafana.looks import FOUND, UP_DOWN, Json
from grafana.panels import by_pattern, lanes, lines
from grafana.queries import Query, gpu_source


def section(_: Json) -> Json:
    """Make this part of the dashboard."""
    seen, expected = gpu_source("kvcache_gpus_seen"), gpu_source("kvcache_gpus_expected")
    problem = gpu_source("kvcache_gpu_source_problem")
    return frame.section(
        "Do the sources answer",
        lanes(
            "Sources",
            "Whether NVML or dcgm-exporter answered; the state is written into the lane.",
            Query(f"min by (source) ({gpu_source('kvcache_gpu_source_up')})", "{{source}}"),
            size=(8, 8),
            no_value="no GPU source configured",
            mappings=UP_DOWN,
        ),
        lines(
            "GPUs seen and expected",
            "A solid line below its dashed one is a GPU that fell off.",
            Query(f"sum by (source) ({seen})", "{{source}} seen"),
            Query(f"sum by (source) ({expected})", "{{source}} expected"),
            unit="none",
            decimals=0,
            size=(8, 8),
            no_value="no GPU source configured",
            overrides=(
                by_pattern(" expected$", custom__lineStyle={"fill": "dash", "dash": [8, 6]}),
            ),
        ),
        lanes(
            "Problems of the sources",
            "What is wrong with a source or its GPUs; the status page of the exporter says it in "
            "words. Nothing here: all GPUs can be read.",
            Query(f"max by (source, problem) ({problem})", "{{source}}: {{problem}}"),
            size=(8, 8),
            no_value="none in this time",
            mappings=FOUND,
        ),
    )
