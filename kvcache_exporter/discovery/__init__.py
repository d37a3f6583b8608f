"""Where targets come from: a file here without a leading underscore is a way to find them.

Such a module has ``open_all(config) -> list[Finder]``, empty where the operator did not ask for it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Protocol
from zlib import crc32

from kvcache_exporter.config import Config
from kvcache_exporter.model import Problem, Target


@dataclass(frozen=True, slots=True)
class Found:
    """What one finder knows now: the last good list, and what is wrong with the newest."""

    targets: tuple[Target, ...]
    problems: tuple[Problem, ...] = ()
    complete: bool = True
    """False before the first good list: targets known from elsewhere may be on it."""


class Finder(Protocol):
    """One place that targets come from."""

    def find(self, now: float) -> Found:
        """Return the targets; *now* is seconds on a steady clock. Never raises, never waits."""

    def close(self) -> None:
        """Let go of everything."""


def open_finders(config: Config) -> list[Finder]:
    """Open every finder that *config* asks for."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return [finder for module in modules for finder in module.open_all(config)]


def find_all(
    finders: list[Finder],
    now: float,
    shard: tuple[int, int] = (0, 1),
    known: Iterable[Target] = (),
) -> Found:
    """Join what all finders know; of two targets with one name the first stands.

    *shard* (i, n) keeps the targets whose names hash to i of n, so that n exporters share them.
    *known* ones stay while a finder that a reload opened has not had its first list.
    """
    found = [finder.find(now) for finder in finders]
    complete = all(one.complete for one in found)
    targets: dict[str, Target] = {}
    for target in chain(*(one.targets for one in found), () if complete else known):
        if crc32(target.name.encode()) % shard[1] == shard[0]:
            targets.setdefault(target.name, target)
    problems = tuple(problem for one in found for problem in one.problems)
    return Found(tuple(targets.values()), problems, complete)
