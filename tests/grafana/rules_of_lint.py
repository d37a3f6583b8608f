"""What dashboards are held to, after grafana/dashboard-linter; each rule yields complaints.

A function here is a rule. `EXEMPT` lists what a rule may find, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from boards import Json, expressions, panels, queries, variables

OURS = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"none", "short", "percentunit", "bytes", "s", "reqps", "cps", "locale"}
EXEMPT = {
    ("variables_allow_everything", "cluster"): "most have one cluster and no such label",
    ("variables_allow_everything", "namespace"): "there is none outside of Kubernetes",
    ("variables_allow_everything", "model_name"): "an engine that is down names no model",
}


def the_data_source_is_a_variable(board: Json) -> Iterator[str]:
    first = board["templating"]["list"][0]
    if (first["type"], first["name"], first["query"]) != ("datasource", "datasource", "prometheus"):
        yield "the first variable is not the data source"


def everything_asks_the_chosen_data_source(board: Json) -> Iterator[str]:
    asking = [*panels(board), *variables(board), *(asked.target for asked in queries(board))]
    asking += [one for one in board["annotations"]["list"] if not one.get("builtIn")]
    for one in asking:
        if one["datasource"] != OURS:
            yield f"{one.get('title') or one.get('name')}: {one['datasource']}"


def there_is_a_job_to_choose(board: Json) -> Iterator[str]:
    if "job" not in {one["name"] for one in variables(board)}:
        yield "no variable job"


def variables_follow_the_time_range(board: Json) -> Iterator[str]:
    yield from (one["name"] for one in variables(board) if one["refresh"] != 2)


def variables_allow_everything(board: Json) -> Iterator[str]:
    yield from (v["name"] for v in variables(board) if v["multi"] and v["allValue"] != ".+")


def variables_are_named_for_people(board: Json) -> Iterator[str]:
    yield from (v["name"] for v in variables(board) if not v["label"][:1].isupper())


def nobody_edits_what_is_generated(board: Json) -> Iterator[str]:
    if board["editable"] or board["id"] is not None:
        yield "editable, or with an id of some server"


def it_is_the_classic_schema(board: Json) -> Iterator[str]:
    if not 39 <= board["schemaVersion"] <= 41:
        yield f"schemaVersion {board['schemaVersion']}"
    yield from {"elements", "layout", "apiVersion", "spec", "__inputs"} & board.keys()


def panels_have_a_title_and_say_what_they_mean(board: Json) -> Iterator[str]:
    for panel in panels(board):
        if not panel["title"] or len(panel["description"]) < 20:
            yield panel["title"]


def panels_have_a_known_unit(board: Json) -> Iterator[str]:
    for panel in panels(board):
        if panel["fieldConfig"]["defaults"]["unit"] not in UNITS:
            yield panel["title"]


def panels_say_that_there_is_nothing(board: Json) -> Iterator[str]:
    yield from (p["title"] for p in panels(board) if not p["fieldConfig"]["defaults"]["noValue"])


def panels_ask_something_under_a_name_of_its_own(board: Json) -> Iterator[str]:
    for panel in panels(board):
        names = [target["refId"] for target in panel["targets"]]
        if not names or len(names) != len(set(names)):
            yield panel["title"]


def gaps_stay_gaps(board: Json) -> Iterator[str]:
    for panel in panels(board):
        if panel["fieldConfig"]["defaults"].get("custom", {}).get("spanNulls", False):
            yield panel["title"]


def every_selector_asks_for_the_job(board: Json) -> Iterator[str]:
    for expr in expressions(board):
        for metric, matchers in re.findall(r"\b(kvcache_\w+)(\{[^}]*\})?", expr):
            if 'job=~"$job"' not in matchers and expr != "kvcache_exporter_targets":
                yield f"{metric}{matchers}"


def regular_expressions_meet_no_single_value(board: Json) -> Iterator[str]:
    many = {one["name"]: one["multi"] for one in variables(board)}
    for expr in expressions(board):
        for operator, name in re.findall(r'(=~|!~|!=|=)\s*"\$(\w+)"', expr):
            if many.get(name) != (operator in ("=~", "!~")):
                yield f"{operator} ${name} in {expr}"


def only_counters_are_rated_and_all_of_them(board: Json) -> Iterator[str]:
    for expr in expressions(board):
        rated = set(re.findall(r"rate\((\w+)\{[^}]*\}\[\$__rate_interval\]", expr))
        yield from rated ^ set(re.findall(r"\bkvcache_\w+_total\b", expr))


def numbers_are_asked_for_now(board: Json) -> Iterator[str]:
    """The last value of a range would show an engine that is gone as if it were there."""
    for asked in queries(board):
        if (asked.panel["type"] in ("stat", "table")) != asked.target["instant"]:
            yield str(asked)


def lists_end(board: Json) -> Iterator[str]:
    """A thousand engines: lines are picked or summed, tables are cut off."""
    for panel in panels(board):
        steps = {step["id"] for step in panel["transformations"]}
        if panel["type"] == "table" and "limit" not in steps:
            yield panel["title"]
    for asked in queries(board):
        drawn = asked.panel["type"] in ("timeseries", "state-timeline")
        outer = re.match(r"(sum|max|min|count)\b(?! by \(cluster)", asked.expr)
        one = 'target="$target"' in asked.expr
        if drawn and not (one or outer or "topk(" in asked.expr):
            yield str(asked)


def nothing_is_said_by_colour_alone(board: Json) -> Iterator[str]:
    for panel in panels(board):
        mappings = panel["fieldConfig"]["defaults"].get("mappings", [])
        words = [look for one in mappings for look in one["options"].values()]
        if not all(look["text"] for look in words) or (
            panel["type"] == "state-timeline" and not words
        ):
            yield panel["title"]


def places_neither_overlap_nor_leave_the_grid(board: Json) -> Iterator[str]:
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        if cells & taken or place["x"] + place["w"] > 24:
            yield panel["title"]
        taken |= cells


def ids_are_unique(board: Json) -> Iterator[str]:
    rows = [one for one in board["panels"] if one["type"] == "row"]
    ids = [one["id"] for one in [*rows, *panels(board)]]
    yield from (str(one) for one in ids if ids.count(one) > 1)
