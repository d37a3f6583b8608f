"""Simulated engines' numbers as the page their server would print, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from prometheus_client.utils import floatToGoString

from .template import Family, Labels, Line, families

PROCESS = ("process_", "python_")


@dataclass(frozen=True, slots=True)
class EngineLabels:
    """Who an engine is on the page, and how its cache is configured."""

    engine: str
    model_name: str
    cache_config: Labels = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Which page a server prints: its engines and the options it was started with."""

    engines: tuple[EngineLabels, ...]
    templates: tuple[str, ...] = ("vllm-0.32.0.prom.in",)
    multiprocess: bool = False
    """Several API servers: no creation times, no process metrics, another order, no filter."""
    log_stats: bool = True
    kv_cache_metrics: bool = False
    names: frozenset[str] = frozenset()
    """Sample names asked for with `name[]`; empty means the whole page."""


def render(layout: Layout, values: Sequence[Mapping[str, float]]) -> bytes:
    """Print the page of these engines; `values` maps keys to numbers, one mapping an engine."""
    parts: list[str] = []
    for text, engine, key in _rows(layout):
        if key is None:
            parts.append(text)
            continue
        value = values[engine][key] if engine is not None else _front_end(values, key)
        parts.append(f"{text}{_number(value)}\n")
    return "".join(parts).encode()


def _number(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def histograms(layout: Layout) -> frozenset[str]:
    """Name the histograms that the page needs."""
    return frozenset(family.name for family in _families(layout) if family.kind == "histogram")


def _front_end(values: Sequence[Mapping[str, float]], key: str) -> float:
    """Answer for the process: its own number, or the sum over all engines behind it."""
    if key.startswith(PROCESS) or "_created" in key:
        return values[0][key]
    return sum(of_engine[key] for of_engine in values)


@lru_cache(maxsize=256)
def _rows(layout: Layout) -> tuple[tuple[str, int | None, str | None], ...]:
    """(text, engine, key) of each line in order; a text without a key stands as it is."""
    rows: list[tuple[str, int | None, str | None]] = []
    for family in _families(layout):
        lines = list(_family_rows(layout, family))
        if lines or not layout.names:
            rows += [(family.head, None, None), *lines]
    return tuple(rows)


@lru_cache(maxsize=256)
def _families(layout: Layout) -> tuple[Family, ...]:
    if layout.multiprocess and layout.names:
        return ()  # several processes: the filtered route answers with an empty page
    every = [family for template in layout.templates for family in families(template)]
    wanted = tuple(family for family in every if _is_wanted(layout, family))
    if layout.multiprocess:
        order = ["gauge", "histogram", "counter", "summary"]
        return tuple(sorted(wanted, key=lambda family: order.index(family.kind)))
    return wanted


def _is_wanted(layout: Layout, family: Family) -> bool:
    if layout.names and not any(line.name in layout.names for line in family.lines):
        return False
    if family.name.startswith("vllm:kv_block_") and not layout.kv_cache_metrics:
        return False
    if layout.multiprocess and (
        family.name.endswith("_created") or family.name.startswith(PROCESS)
    ):
        return False
    return layout.log_stats or not family.name.startswith("vllm:")


def _family_rows(layout: Layout, family: Family) -> Iterator[tuple[str, int | None, str]]:
    for child in family.children:
        per_engine = any(label == "engine" for label, _ in child[0].labels)
        engines = enumerate(layout.engines if per_engine else layout.engines[:1])
        for index, engine in engines:
            for line in _ordered(layout, family, child):
                if not layout.names or line.name in layout.names:
                    yield _text(line, engine), index if per_engine else None, line.key


def _ordered(layout: Layout, family: Family, child: tuple[Line, ...]) -> Sequence[Line]:
    """Put the sum of a histogram before its buckets, as several processes print it."""
    if not layout.multiprocess or family.kind != "histogram":
        return child
    total = f"{family.name}_sum"
    return sorted(child, key=lambda line: line.name != total)


def _text(line: Line, engine: EngineLabels) -> str:
    own = {"engine": engine.engine, "model_name": engine.model_name, **dict(engine.cache_config)}
    printed = ",".join(f'{label}="{own.get(label, value)}"' for label, value in line.labels)
    return f"{line.name}{{{printed}}} " if printed else f"{line.name} "
