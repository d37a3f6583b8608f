"""What stands around the panels: variables, annotations, links and the places on the grid."""

from __future__ import annotations

from collections.abc import Sequence

from grafana.looks import ORANGE, PURPLE, Json
from grafana.panels import DATASOURCE
from grafana.queries import ENGINE_KEY, JOB
from grafana.variables import DATA_SOURCE

SCHEMA_VERSION = 41
TAG = "kvcache"
ENGINE_LINK = (
    "/d/kvcache-engine?${datasource:queryparam}&${job:queryparam}&${cluster:queryparam}"
    "&${__url_time_range}"
    "&var-target=${__%s.target:percentencode}&var-engine=${__%s.engine:percentencode}"
)


def dashboard(
    uid: str, title: str, description: str, variables: Sequence[Json], sections: Sequence[Json]
) -> Json:
    """Put everything together; ids and places follow from the order."""
    return {
        "id": None,
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG, "vllm"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-6h", "to": "now"},
        "links": [_dropdown()],
        "annotations": {"list": [_builtin(), *_annotations(variables)]},
        "templating": {"list": [DATA_SOURCE, *variables]},
        "panels": _placed(sections),
    }


def section(title: str, *panels: Json, collapsed: bool = False) -> Json:
    """Head a group of panels; a collapsed one asks nothing until it is opened."""
    return {"type": "row", "title": title, "collapsed": collapsed, "panels": list(panels)}


def engine_link(where: str) -> list[Json]:
    """Lead from a row (`data.fields`) or a series (`field.labels`) to its engine."""
    return [{"title": "Open this engine", "url": ENGINE_LINK % (where, where)}]


def _dropdown() -> Json:
    return {
        "type": "dashboards",
        "title": "KV cache dashboards",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def _builtin() -> Json:
    return {
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)",
        "name": "Annotations & Alerts",
        "type": "dashboard",
    }


def _annotations(variables: Sequence[Json]) -> list[Json]:
    """Mark alerts and restarts, of the chosen targets where there is a choice."""
    operators = (("=~" if v["multi"] else "=") for v in variables if v["name"] == "target")
    choice = "".join(f', target{operator}"$target"' for operator in operators)
    alerts = f'alertname=~"KVCache.*", alertstate="firing", cluster=~"$cluster"{choice}'
    found = f'{JOB}, finding="restart"{choice}'
    return [
        _annotation(
            "Alerts",
            f"max by (alertname, severity, {ENGINE_KEY}) (ALERTS{{{alerts}}})",
            ORANGE,
            "{{alertname}} ({{severity}})",
        ),
        _annotation(
            "Restarts",
            f"max by ({ENGINE_KEY}) (kvcache_finding{{{found}}}) == 1",
            PURPLE,
            "Engine restarted",
        ),
    ]


def _annotation(name: str, expr: str, colour: str, title: str) -> Json:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": "60s",
        "titleFormat": title,
        "textFormat": "{{target}} {{engine}}",
        "tagKeys": "target,engine",
        "useValueForTime": False,
    }


def _placed(sections: Sequence[Json]) -> list[Json]:
    placed: list[Json] = []
    top, number = 0, 0
    for one in sections:
        if one["title"]:
            number += 1
            head = {k: v for k, v in one.items() if k != "panels"}
            head |= {"id": number, "panels": [], "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}}
            placed.append(head)
            top += 1
        inside = placed[-1]["panels"] if one["collapsed"] else placed
        left = height = 0
        for panel in one["panels"]:
            size = panel["gridPos"]
            if left + size["w"] > 24:
                left, top = 0, top + height
            number, height = number + 1, size["h"]
            inside.append({"id": number, **panel, "gridPos": {"x": left, "y": top, **size}})
            left += size["w"]
        top += height
    return placed
