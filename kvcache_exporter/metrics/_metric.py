"""One exposed family: its name, its HELP text and how to get its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
Labels = tuple[tuple[str, str], ...]
Row = tuple[Labels, float | None]


@dataclass(frozen=True, slots=True)
class Metric(Generic[T]):
    """One family: its name, its HELP text and how to get its rows from one *T*."""

    name: str
    help: str
    rows: Callable[[T], Iterable[Row]]
    labels: tuple[str, ...] = ()
    """Labels beyond those that say which *T* it is."""
    kind: str = "gauge"


def metric(name: str, help_text: str, value: Callable[[T], float | None]) -> Metric[T]:
    return Metric(name, help_text, lambda one: (((), value(one)),))
