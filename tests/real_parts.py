"""The real Prometheus and Alertmanager, and the script that makes their rules."""

from __future__ import annotations

import importlib.util
import shutil
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
ALERTING = ROOT / "alerting"
PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
}
"""Debian's package by program."""


def program(name: str) -> str:
    """Find a real program; a missing one is an error, not a test left out."""
    found = shutil.which(name)
    assert found is not None, f"{name} is missing: apt-get install {PACKAGES[name]}"
    return found


@cache
def rule_builder() -> ModuleType:
    """Import alerting/build.py, which is a script and no package."""
    spec = importlib.util.spec_from_file_location("alerting_build", ALERTING / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
