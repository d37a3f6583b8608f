"""The alert rules as committed, their promtool tests, and the real tools that know them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ALERTING = ROOT / "alerting"
PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
}


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


def tool(name: str) -> str:
    """Find a real tool; a missing one is an error, not a test left out."""
    found = shutil.which(name)
    assert found is not None, f"{name} is missing: apt-get install {PACKAGES[name]}"
    return found


def call(name: str, *arguments: str | Path) -> str:
    """Run a tool and return what it says; fail with that text."""
    done = subprocess.run(
        [tool(name), *map(str, arguments)], capture_output=True, text=True, timeout=100, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@cache
def build() -> ModuleType:
    """Import alerting/build.py, which is a script and no package."""
    spec = importlib.util.spec_from_file_location("alerting_build", ALERTING / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
            for line in test["alert_rule_test"]:
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
