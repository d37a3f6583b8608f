"""What stands around the panels: variables, annotations, links and the places on the grid."""

from __future__ import annotations

from collections.abc import Sequence

from grafana.looks import ORANGE, PURPLE, Json
from grafana.panels import DATASOURCE

SCHEMA_VERSION = 41
TAG = "kvcache"
ENGINE_LINK = (
    "/d/kvcache-engine/?${datasource:queryparam}&${job:queryparam}&${__url_time_range}"
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
        "templating": {"list": [_datasource(), *variables]},
        "panels": _placed(sections),
    }


def section(title: str, *panels: Json, collapsed: bool = False) -> Json:
    """Head a group of panels; a collapsed one asks nothing until it is opened."""
    return {"type": "row", "title": title, "collapsed": collapsed, "panels": list(panels)}


def variable(
    name: str, label: str, query: str, *, many: bool = True, all_value: str = ".+"
) -> Json:
    """Let people choose from the values a label has in the time range."""
    everything = {"text": "All", "value": "$__all"}
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "query": {
            "query": f"label_values({query}, {name if name != 'gpu' else 'uuid'})",
            "refId": name,
        },
        "refresh": 2,
        "sort": 1,
        "multi": many,
        "includeAll": many,
        "allValue": all_value if many else None,
        "current": everything if many else {},
        "hide": 0,
    }


def engine_link(where: str) -> list[Json]:
    """Lead from a row (`data.fields`) or a series (`field.labels`) to its engine."""
    return [{"title": "Open this engine", "url": ENGINE_LINK % (where, where)}]


def _datasource() -> Json:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
        "hide": 0,
    }


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
    choice = 'target=~"$target"' if any(v["name"] == "target" for v in variables) else ""
    alerts = ", ".join(filter(None, ('alertname=~"KVCache.*"', 'alertstate="firing"', choice)))
    found = ", ".join(filter(None, ('job=~"$job"', 'finding="restart"', choice)))
    return [
        _annotation(
            "Alerts",
            f"max by (alertname, severity, target, engine) (ALERTS{{{alerts}}})",
            ORANGE,
            "{{alertname}} ({{severity}})",
        ),
        _annotation(
            "Restarts",
            f"max by (target, engine) (kvcache_finding{{{found}}}) == 1",
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
