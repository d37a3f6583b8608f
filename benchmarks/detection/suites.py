"""The suites: named scenarios (healthy and faulty), and the random draws that nobody tuned on."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from benchmarks.detection import scenarios
from benchmarks.detection.scenario import Scenario


def named() -> dict[str, Scenario]:
    """Every scenario of every file in ``scenarios/``, by name; a name may appear once."""
    found: dict[str, Scenario] = {}
    for module in pkgutil.iter_modules(scenarios.__path__):
        for scenario in import_module(f"{scenarios.__name__}.{module.name}").SCENARIOS:
            if scenario.name in found:
                raise ValueError(f"two scenarios are called {scenario.name!r}: rename one")
            found[scenario.name] = scenario
    return found
