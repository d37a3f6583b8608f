"""A runbook for each alert and an alert for each runbook; what they tell to paste exists."""

from __future__ import annotations

import re

import click
import pytest
import yaml
from alert_rules import alerts, all_rules, call, names
from real_parts import ROOT

from kvcache_exporter.cli import main
from kvcache_exporter.metrics import CATALOGUE

BOOKS = sorted((ROOT / "docs/runbooks").glob("*.md"))
PAGES = [path for path in BOOKS if path.name != "README.md"]
SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
QUERY = re.compile(r"```promql\n(.*?)```", re.DOTALL)
PARTS = ("Confirm", "Causes", "Relieve", "Verify")


def sections():
    return [
        pytest.param(path, name, text, id=name)
        for path in PAGES
        for name, text in SECTION.findall(path.read_text())
    ]


def test_each_alert_has_a_section_on_the_page_it_links_to():
    written = {(path.stem, name) for path in PAGES for name, _ in SECTION.findall(path.read_text())}
    assert written == {(rule.page, rule.name) for rule in alerts()}


@pytest.mark.parametrize(("path", "name", "text"), sections())
def test_a_section_says_how_to_confirm_why_how_to_relieve_and_how_to_verify(path, name, text):
    found = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
    assert found == list(PARTS), (path, name)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_prometheus_parses_every_query_of_a_runbook(path, tmp_path):
    queries = [" ".join(query.split()) for query in QUERY.findall(path.read_text())]
    rules = [{"record": f"runbook:query{n}:x", "expr": q} for n, q in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "runbook", "rules": rules}]}))
    call("promtool", "check", "rules", file)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_runbook_names_only_metrics_commands_and_pages_that_exist(path):
    text = path.read_text()
    known = {metric.name for metric in CATALOGUE}
    known |= {rule["record"] for rule in all_rules() if "record" in rule}
    assert set(re.findall(r"\b(?:\w+:)?kvcache_[a-z_]+(?::\w+)*", text)) <= known
    commands = set(re.findall(r"kvcache-exporter ([a-z][a-z-]+)\b", text))
    assert commands <= set(main.list_commands(click.Context(main)))
    for page, anchor in re.findall(r"\]\(((?:\.\./)?[\w.-]*\.md)?#?(\w*)\)", text):
        target = (path.parent / page) if page else path
        assert target.exists(), page
        assert not anchor or anchor in {name.lower() for name in names()}, anchor
