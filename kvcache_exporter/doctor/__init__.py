"""The one-shot doctor: a file here is a question, asked in the order of their ``RANK``.

Each has ``examine(evidence) -> Iterable[Answer]``. A question that the evidence cannot answer says
``unknown``, which is not ``fine``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from kvcache_exporter.explain import Looked
from kvcache_exporter.model import EngineReading, EngineStatus


class Level(IntEnum):
    """How bad an answer is; the values are the exit codes of ``check``."""

    FINE = 0
    WARNING = 1
    PROBLEM = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: what was asked, how it stands in words with numbers, and what to do next."""

    question: str
    level: Level
    text: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a few looks at one target gave, first to last."""

    looks: Sequence[Looked]
    expect_idle: bool = False

    @property
    def last(self) -> Looked:
        """The newest look."""
        return self.looks[-1]

    @property
    def engines(self) -> tuple[EngineReading, ...]:
        """The engines on the newest page."""
        return self.last.reading.engines

    @property
    def seconds(self) -> float:
        """Time from the first look to the last."""
        return self.last.scrape.time - self.looks[0].scrape.time

    def statuses(self) -> Iterator[tuple[EngineReading, EngineStatus]]:
        """Yield each engine's reading with its status."""
        judged = {status.engine: status for status in self.last.engines}
        for reading in self.engines:
            yield reading, judged[reading.engine]

    def history(self, engine: str) -> list[EngineReading]:
        """Return what the looks saw of one engine."""
        return [r for look in self.looks for r in look.reading.engines if r.engine == engine]


def examine(evidence: Evidence) -> list[Answer]:
    """Ask every question."""
    names = [m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")]
    modules = sorted(
        (importlib.import_module(f"{__name__}.{name}") for name in names), key=lambda m: m.RANK
    )
    return [answer for module in modules for answer in module.examine(evidence)]


def worst(answers: Iterable[Answer]) -> Level:
    """Sum answers up: a problem before a warning before what cannot be told."""
    levels = {answer.level for answer in answers}
    for level in (Level.PROBLEM, Level.WARNING, Level.UNKNOWN):
        if level in levels:
            return level
    return Level.FINE
