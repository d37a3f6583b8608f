"""Indicators: every module here is one unless it begins with ``_``; its file is its registration.

``indicate(history, settings)`` is pure and answers with an ``Indication`` or None (nothing to
say). Optional constants of a module: ``EVERY_SECONDS`` (default 0 = each scrape) says how old
the last answer may be before it is asked again. An indication votes for a state with ``state``,
names a finding with ``finding`` and hands numbers to the judgement through ``details``, keyed by
the field of ``Judgement`` they fill.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication


class Indicator(NamedTuple):
    """One indicator module as found."""

    name: str
    every_seconds: float
    indicate: Callable[[History, JudgeSettings], Indication | None]


@cache
def all_indicators() -> tuple[Indicator, ...]:
    """Every indicator in this folder, by name."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    names = sorted(name for name in found if not name.startswith("_"))
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    return tuple(
        Indicator(
            module.__name__.rpartition(".")[2],
            float(getattr(module, "EVERY_SECONDS", 0.0)),
            module.indicate,
        )
        for module in modules
    )
