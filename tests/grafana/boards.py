"""The committed dashboards as the tests see them: files, panels and queries, no builder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_exporter.metrics import table

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
BOARDS = [json.loads(path.read_text()) for path in FILES]
NAMES = [path.stem for path in FILES]
LABELS = {name: set(labels.split(", ")) for name, labels, _ in table.rows()}
"""Every metric of the catalogue, with its labels."""

Json = dict[str, Any]
METRIC = re.compile(r"\bkvcache_\w+")
SELECTOR = re.compile(r"\b(kvcache_\w+)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')


class Asked(NamedTuple):
    """One query of one panel."""

    panel: Json
    target: Json

    @property
    def expr(self) -> str:
        return str(self.target["expr"])

    def __str__(self) -> str:
        return f"{self.panel['title']} {self.target['refId']}"


def panels(board: Json) -> Iterator[Json]:
    """Yield every panel, those of collapsed rows included, without the rows."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def queries(board: Json) -> Iterator[Asked]:
    return (Asked(panel, target) for panel in panels(board) for target in panel["targets"])


def variables(board: Json) -> list[Json]:
    return [one for one in board["templating"]["list"] if one["type"] == "query"]


def expressions(board: Json) -> Iterator[str]:
    """Yield every piece of PromQL: panels, annotations, variables."""
    yield from (asked.expr for asked in queries(board))
    yield from (one["expr"] for one in board["annotations"]["list"] if "expr" in one)
    for one in variables(board):
        yield re.sub(r"label_values\((.*), \w+\)", r"\1", one["query"]["query"])


def filled(expr: str, values: dict[str, str]) -> str:
    """Put values in for variables, as Grafana would for a range of six hours."""
    given = {"__rate_interval": "240s", "__interval": "60s", "__range": "21600s", **values}
    return re.sub(r"\$\{?(\w+)\}?", lambda match: given[match[1]], expr)


ANYTHING = dict.fromkeys(
    ("job", "cluster", "namespace", "model_name", "target", "engine", "gpu", "instance"), ".*"
)
