"""The alert rules as committed, their promtool tests, and the real tools that know them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from real_parts import ALERTING, program


@dataclass(frozen=True)
class Rule:
    """One alerting rule and where it stands."""

    page: str
    """Stem of its file, which is also that of its runbook."""
    text: dict[str, Any]

    @property
    def name(self) -> str:
        return self.text["alert"]

    @property
    def severity(self) -> str:
        return self.text["labels"]["severity"]

    @property
    def id(self) -> str:
        return f"{self.name}-{self.severity}"


@dataclass(frozen=True)
class Expectation:
    """What one line of a promtool test expects."""

    group: str
    alert: str
    seconds: int
    alerts: list[dict[str, Any]]


def call(name: str, *arguments: str | Path) -> str:
    """Run a tool and return what it says; fail with that text."""
    done = subprocess.run(
        [program(name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def rule_files() -> list[Path]:
    return sorted(ALERTING.glob("rules*/*.yml"))


@cache
def all_rules() -> tuple[dict[str, Any], ...]:
    """Every rule, recording ones too."""
    files = [yaml.safe_load(path.read_text()) for path in rule_files()]
    return tuple(rule for one in files for group in one["groups"] for rule in group["rules"])


@cache
def alerts() -> tuple[Rule, ...]:
    return tuple(
        Rule(path.stem, rule)
        for path in rule_files()
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    )


@cache
def names() -> frozenset[str]:
    return frozenset(rule.name for rule in alerts())


@cache
def expectations() -> tuple[Expectation, ...]:
    return tuple(_expectations())


def _expectations() -> Iterator[Expectation]:
    for path in sorted((ALERTING / "tests").glob("*.yml")):
        for test in yaml.safe_load(path.read_text())["tests"]:
            for line in test.get("alert_rule_test", []):
                yield Expectation(
                    test["name"],
                    line["alertname"],
                    _seconds(line["eval_time"]),
                    line["exp_alerts"],
                )


def _seconds(duration: str) -> int:
    units = {"s": 1, "m": 60, "h": 3600}
    return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)([smh])", duration))


@cache
def labels_of(name: str) -> frozenset[str]:
    """Every label that the tests have seen on an alert."""
    seen = [one for line in expectations() if line.alert == name for one in line.alerts]
    return frozenset(label for one in seen for label in one["exp_labels"])
