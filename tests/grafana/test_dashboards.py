"""The committed dashboards, held to the habits of Grafana and to our own catalogue."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rules_of_lint
import yaml
from boards import (
    ANYTHING,
    BOARDS,
    FILES,
    LABELS,
    MATCHER,
    METRIC,
    NAMES,
    ROOT,
    SELECTOR,
    Json,
    expressions,
    filled,
    panels,
)

from kvcache_exporter.model import State

RULES = [rule for _, rule in inspect.getmembers(rules_of_lint, inspect.isfunction)]
RULES = [rule for rule in RULES if rule.__module__ == "rules_of_lint"]
ADDED_BY_PROMETHEUS = {"job", "instance", "cluster", "namespace", "pod"}
SHOWN_NOWHERE: dict[str, str] = {}
"""Metrics of the catalogue that no dashboard shows, with the reason."""

each_board = pytest.mark.parametrize("board", BOARDS, ids=NAMES)


@each_board
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule: Callable[[Json], Iterator[str]], board: Json) -> None:
    exempt = {name for one, name in rules_of_lint.EXEMPT if one == rule.__name__}
    assert [found for found in rule(board) if found not in exempt] == []


def test_every_exemption_is_needed() -> None:
    rules = {rule.__name__: rule for rule in RULES}
    for rule, name in rules_of_lint.EXEMPT:
        assert any(name in rules[rule](board) for board in BOARDS), (rule, name)


def test_what_is_committed_is_what_the_builder_makes() -> None:
    done = subprocess.run([sys.executable, "-m", "grafana.build", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run: python -m grafana.build"


def test_names_and_addresses_are_unique() -> None:
    assert [board["uid"] for board in BOARDS] == NAMES
    assert len({board["title"] for board in BOARDS}) == len(BOARDS)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_dashboard_fits_into_a_configmap(path: Path) -> None:
    assert path.stat().st_size < 200 * 1024


@each_board
def test_panels_read_only_metrics_of_the_catalogue(board: Json) -> None:
    names = {name for expr in expressions(board) for name in METRIC.findall(expr)}
    assert names <= LABELS.keys()
    others = {word for e in expressions(board) for word in re.findall(r"\b(\w+)\{", e)} - names
    assert others <= {"ALERTS"}


def test_every_metric_of_the_catalogue_is_shown_or_has_a_reason() -> None:
    shown = {n for board in BOARDS for expr in expressions(board) for n in METRIC.findall(expr)}
    assert LABELS.keys() - shown == SHOWN_NOWHERE.keys()


@each_board
def test_selectors_use_labels_that_the_metric_has(board: Json) -> None:
    for expr in expressions(board):
        for name, matchers in SELECTOR.findall(expr):
            assert set(MATCHER.findall(matchers)) <= LABELS[name] | ADDED_BY_PROMETHEUS, expr


@each_board
def test_variables_used_are_variables_defined(board: Json) -> None:
    defined = {one["name"] for one in board["templating"]["list"]}
    used = {name for e in expressions(board) for name in re.findall(r"\$\{?([a-z]\w*)", e)}
    assert used <= defined


@each_board
def test_promtool_can_parse_every_query(board: Json, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing: apt-get install prometheus"
    rules = [
        {"record": f"check:expr:{number}", "expr": filled(expr, ANYTHING)}
        for number, expr in enumerate(expressions(board))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@each_board
def test_links_lead_to_dashboards_that_exist_with_variables_they_have(board: Json) -> None:
    boards = {one["uid"]: one for one in BOARDS}
    for url in re.findall(r"'url': '(/d/[^']+)'", str(board)):
        goal = boards[url.split("/")[2].partition("?")[0]]
        known = {one["name"] for one in goal["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", url)) <= known


def _alert_links() -> Iterator[str]:
    for path in sorted((ROOT / "alerting" / "rules").glob("*.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                if url := rule.get("annotations", {}).get("dashboard_url"):
                    yield url


def test_alerts_link_to_dashboards_that_exist_with_variables_they_have() -> None:
    boards = {one["uid"]: {v["name"] for v in one["templating"]["list"]} for one in BOARDS}
    for url in _alert_links():
        uid = re.search(r"/d/([\w-]+)", url)
        assert uid, url
        assert set(re.findall(r"var-(\w+)=", url)) <= boards[uid[1]], url


def test_every_state_has_a_text_and_no_two_share_one() -> None:
    verdict = next(p for p in panels(_board("kvcache-engine")) if p["title"] == "Verdict")
    looks = verdict["fieldConfig"]["defaults"]["mappings"][0]["options"]
    assert list(looks) == [str(code) for code, _ in enumerate(State)]
    assert len({look["text"] for look in looks.values()}) == len(State)
    expr = verdict["targets"][0]["expr"]
    assert re.findall(r'(\d+) \* \([^)]*state="(\w+)"', expr) == [
        (str(code), str(state)) for code, state in enumerate(State)
    ]


def _thresholds(value: Any) -> Iterator[float]:
    """Yield the numbers of all threshold steps anywhere in *value*."""
    if isinstance(value, dict):
        if "steps" in value and "mode" in value:
            yield from (s["value"] for s in value["steps"] if s["value"] is not None)
        for inner in value.values():
            yield from _thresholds(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _thresholds(inner)


PLAIN_FACTS = {0, 0.0001, 0.01, 1}
"""Anything at all, and the first whole one."""


@each_board
def test_lines_and_colours_change_where_alerts_do(board: Json) -> None:
    shared = yaml.safe_load((ROOT / "alerting" / "thresholds.yml").read_text())
    assert set(_thresholds(board)) <= {v for v in shared.values() if v} | PLAIN_FACTS


def _board(uid: str) -> Json:
    return BOARDS[NAMES.index(uid)]
