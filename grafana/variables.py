"""The choices at the top of the dashboards, each narrowed by those before it."""

from __future__ import annotations

from grafana.looks import Json
from grafana.panels import DATASOURCE
from grafana.queries import ENGINE, JOB, TARGET

ABSENT_TOO = ".*"
"""What All means for a label that not everybody has."""
_SPACE = f'{JOB}, namespace=~"$namespace"'

DATA_SOURCE: Json = {
    "type": "datasource",
    "name": "datasource",
    "label": "Data source",
    "query": "prometheus",
    "refresh": 1,
    "current": {},
    "hide": 0,
}


def variable(
    name: str,
    label: str,
    series: str,
    *,
    of: str | None = None,
    many: bool = True,
    all_value: str = ".+",
) -> Json:
    """Let people choose from the values that the label *of* (or *name*) has in the time range."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {"query": f"label_values({series}, {of or name})", "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": many,
        "includeAll": many,
        "allValue": all_value if many else None,
        "current": {"text": "All", "value": "$__all"} if many else {},
        "hide": 0,
    }


WHERE = (
    variable("job", "Job", "kvcache_exporter_targets"),
    variable("cluster", "Cluster", 'kvcache_exporter_targets{job=~"$job"}', all_value=ABSENT_TOO),
)
NAMESPACE = variable("namespace", "Namespace", f"kvcache_verdict{{{JOB}}}", all_value=ABSENT_TOO)
MANY_TARGETS = (
    *WHERE,
    NAMESPACE,
    variable("model_name", "Model", f"kvcache_engine_info{{{_SPACE}}}", all_value=ABSENT_TOO),
    variable("target", "Target", f"kvcache_target_up{{{_SPACE}}}"),
)
ONE_ENGINE = (
    *WHERE,
    NAMESPACE,
    variable("target", "Target", f"kvcache_verdict{{{_SPACE}}}", many=False),
    variable("engine", "Engine", f"kvcache_verdict{{{TARGET}}}", many=False),
)
GPUS_OF_ENGINE = variable("gpu", "GPU", f"kvcache_engine_gpu_info{{{ENGINE}}}", of="uuid")
ALL_GPUS = variable("gpu", "GPU", f"kvcache_gpu_info{{{JOB}}}", of="uuid")
EXPORTERS = (*WHERE, variable("instance", "Instance", f"kvcache_exporter_targets{{{JOB}}}"))
