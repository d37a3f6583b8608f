"""Panels: one function a kind, each of them a plain dictionary in Grafana's classic schema."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

from grafana.looks import GREY, PLAIN, Json
from grafana.queries import Query

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
FLEET_POINTS = 150
_LEGEND = {"displayMode": "table", "placement": "bottom", "showLegend": True}
_TOOLTIP = {"mode": "multi", "sort": "desc"}
_EMPTY_CELL = {
    "matcher": {"id": "byRegexp", "options": "/.*/"},
    "properties": [{"id": "noValue", "value": "–"}],
}


def panel(
    kind: str,
    title: str,
    description: str,
    queries: tuple[Query, ...],
    *,
    unit: str,
    size: tuple[int, int],
    points: int | None = None,
    no_value: str = "no data",
    options: Json | None = None,
    overrides: tuple[Json, ...] = (),
    transformations: tuple[Json, ...] = (),
    **defaults: Any,
) -> Json:
    """Make a panel of any *kind*; *size* is (columns of 24, rows), *defaults* are of its fields.

    *points* bounds the steps of a query that touches every engine, however wide the screen is.
    """
    fields = {"unit": unit, "noValue": no_value, "thresholds": PLAIN, **defaults}
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {"w": size[0], "h": size[1]},
        "targets": [
            _target(ref, query) for ref, query in zip(ascii_uppercase, queries, strict=False)
        ],
        "fieldConfig": {"defaults": fields, "overrides": list(overrides)},
        "maxDataPoints": points,
        "options": options or {},
        "transformations": list(transformations),
    }


def stat(title: str, description: str, *queries: Query, unit: str, width: int, **more: Any) -> Json:
    """One number in words and colour, as it is now."""
    options = {
        "reduceOptions": {
            "calcs": ["lastNotNull"],
            "fields": more.pop("fields", ""),
            "values": False,
        },
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "center",
        "textMode": more.pop("text_mode", "value"),
        "wideLayout": False,
    }
    more = {"color": {"mode": "thresholds"}, "size": (width, 4)} | more
    return panel("stat", title, description, queries, unit=unit, options=options, **more)


def lines(title: str, description: str, *queries: Query, unit: str, **more: Any) -> Json:
    """Lines over time with gaps where nothing is known; `limits` draws thresholds as lines."""
    custom = {
        "drawStyle": "line",
        "lineWidth": 2,
        "fillOpacity": more.pop("fill", 0),
        "showPoints": "auto",
        "pointSize": 4,
        "spanNulls": False,
        "axisSoftMin": 0,
        "axisSoftMax": more["limits"]["steps"][-1]["value"] if "limits" in more else None,
        "axisLabel": more.pop("axis", ""),
        "thresholdsStyle": {"mode": "dashed" if "limits" in more else "off"},
        "stacking": {"mode": "normal" if more.pop("stacked", False) else "none", "group": "A"},
    }
    legend = _LEGEND | {"calcs": more.pop("calcs", ["lastNotNull", "max"])}
    more = {"size": (12, 9), "color": {"mode": "palette-classic"}} | more
    if "limits" in more:
        more["thresholds"] = more.pop("limits")
    options = {"legend": legend, "tooltip": _TOOLTIP}
    return panel(
        "timeseries", title, description, queries, unit=unit, options=options, custom=custom, **more
    )


def lanes(title: str, description: str, *queries: Query, **more: Any) -> Json:
    """One lane a series, with its state written into it."""
    options = {
        "showValue": "auto",
        "alignValue": "left",
        "mergeValues": True,
        "rowHeight": 0.8,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    custom = {"fillOpacity": 85, "lineWidth": 0, "spanNulls": False}
    more = {"unit": "none", "color": {"mode": "thresholds"}} | more
    return panel(
        "state-timeline", title, description, queries, options=options, custom=custom, **more
    )


def table(
    title: str,
    description: str,
    *queries: Query,
    columns: dict[str, str],
    sort: str | None = None,
    **more: Any,
) -> Json:
    """Rows joined by the labels they share; *columns*: label or `Value #A` to title, in order."""
    organize = {
        "excludeByName": {"Time": True} | dict.fromkeys(more.pop("hidden", ()), True),
        "indexByName": {name: index for index, name in enumerate(columns)},
        "renameByName": columns,
    }
    options = {
        "showHeader": True,
        "cellHeight": "sm",
        "sortBy": [{"displayName": sort, "desc": True}] if sort else [],
    }
    transformations = (
        {"id": "merge", "options": {}},
        {"id": "organize", "options": organize},
        {"id": "limit", "options": {"limitField": more.pop("limit", 200)}},
    )
    custom = {"align": "auto", "cellOptions": {"type": "auto"}}
    more = {"unit": "none"} | more
    more["overrides"] = (_EMPTY_CELL, *more.get("overrides", ()))
    return panel(
        "table",
        title,
        description,
        queries,
        options=options,
        custom=custom,
        transformations=transformations,
        **more,
    )


def by_name(name: str, **properties: Any) -> Json:
    """Override fields of the series or column called *name*; `custom__x` means `custom.x`."""
    listed = [{"id": k.replace("__", "."), "value": v} for k, v in properties.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": listed}


def coloured(column: str, **properties: Any) -> Json:
    """Override a column and write its values in the colour they stand for."""
    return by_name(column, custom__cellOptions={"type": "color-text"}, **properties)


def on_colour(column: str, **properties: Any) -> Json:
    """Override a column and write its values on the colour they stand for, in any theme."""
    style = {"type": "color-background", "mode": "basic"}
    return by_name(column, custom__cellOptions=style, **properties)


def by_pattern(pattern: str, **properties: Any) -> Json:
    """Override fields whose names match *pattern*."""
    return by_name(f"/{pattern}/", **properties) | {
        "matcher": {"id": "byRegexp", "options": f"/{pattern}/"}
    }


def painted(name: str, colour: str, *, dashed: bool = False, **properties: Any) -> Json:
    """Give a series its colour; a dashed one is what should be, not what is."""
    if dashed:
        properties["custom__lineStyle"] = {"fill": "dash", "dash": [8, 6]}
    return by_name(name, color={"mode": "fixed", "fixedColor": colour}, **properties)


def limit(name: str) -> Json:
    """Paint the line that nothing should reach."""
    return painted(
        name,
        GREY,
        dashed=True,
        custom__fillOpacity=0,
        custom__stacking={"mode": "none", "group": "A"},
    )


def band(low: str, high: str, colour: str) -> tuple[Json, Json]:
    """Fill the space between two series, and draw neither."""
    quiet: Json = {"custom__lineWidth": 0, "custom__showPoints": "never"}
    return (
        painted(low, colour, **quiet),
        painted(high, colour, custom__fillBelowTo=low, custom__fillOpacity=20, **quiet),
    )


def _target(ref: str, query: Query) -> Json:
    return {
        "refId": ref,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "format": "table" if query.table else "time_series",
        "instant": query.instant,
        "range": not query.instant,
    }
