"""What the series of a page mean, worked out once and reused while the same series come back.

A page's names and labels hardly ever change from scrape to scrape; only its values do. So all
sorting is done here, and reading a page is then a handful of sums by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvcache_exporter.engines import _vllm_info as info_metric
from kvcache_exporter.engines import _vllm_names as names
from kvcache_exporter.model import Problem
from kvcache_exporter.pool_size.capacity import Claims, Dialect

MAX_ENGINES = 64

Series = tuple[str, Mapping[str, str]]
Members = tuple[tuple[int, ...], ...]
"""Positions to be summed; within one inner tuple (copies of one series) the largest counts."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Where fields stand on the page: most are one series, some the sum of several."""

    single: tuple[tuple[str, int], ...] = ()
    summed: tuple[tuple[str, Members], ...] = ()


@dataclass(frozen=True, slots=True)
class EngineLayout(Positions):
    """One engine: where its fields stand on the page, and what its labels say for good."""

    engine: str = "0"
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the reading that hold for as long as the labels do."""
    claims: Claims = field(default_factory=Claims)
    block_size_tokens: int | None = None
    pool_tokens: int | None = None
    """As printed: for hybrid models it is not blocks times block size."""
    hits_in_blocks: bool = False
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole page."""

    engines: tuple[EngineLayout, ...] = ()
    process: Positions = field(default_factory=Positions)
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class _Found:
    """The series of one engine while the page is sorted: family and label block to positions."""

    naming: str
    model_name: str | None = None
    families: dict[str, dict[tuple[tuple[str, str], ...], list[int]]] = field(default_factory=dict)
    pid_copies: bool = False
    engine_label: bool = False


def layout(series: Sequence[Series], configured_blocks: int | None = None) -> Layout:
    """Sort the *series* of one page by engine and field."""
    found: dict[str, _Found] = {}
    info: dict[str, Mapping[str, str]] = {}
    process: dict[str, list[int]] = {}
    for position, (name, labels) in enumerate(series):
        prefix, base = _cut(name)
        if not prefix:
            if base != names.HTTP or "completions" in labels.get("handler", ""):
                process.setdefault(base, []).append(position)
        elif base == names.INFO:
            info.setdefault(_engine_of(labels), labels)
        else:
            _sort(found.setdefault(_engine_of(labels), _Found(prefix)), base, labels, position)
    ranked = sorted(found.items(), key=lambda item: _rank(item[0]))
    counted = _counted_over([name for name, _ in ranked])
    return Layout(
        tuple(
            _engine(name, one, info.get(name, info.get("0", {})), counted[name], configured_blocks)
            for name, one in ranked[:MAX_ENGINES]
        ),
        _process(process),
        tuple(_page_problems(len(ranked))),
    )


def _counted_over(engines: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Over how many engines the pool label of each may be summed, likeliest first.

    All ranks up to the highest one, or those on the page, last. Only before 0.10 may ranks be
    missing there: later ones show all that one front end serves.
    """
    servers: dict[str, list[str]] = {}
    for engine in engines:
        replica, _, rank = engine.rpartition("/")
        servers.setdefault(replica, []).append(rank)
    over = {
        replica: tuple(dict.fromkeys((max(map(_number, ranks)) + 1, len(ranks))))
        for replica, ranks in servers.items()
    }
    return {engine: over[engine.rpartition("/")[0]] for engine in engines}


def _process(found: Mapping[str, list[int]]) -> Positions:
    """Requests are summed over handlers; of the others the first process on the page counts."""
    single = [(name, where[0]) for name, where in found.items() if name != names.HTTP]
    requests = tuple((at,) for at in found.get(names.HTTP, ()))
    return Positions(tuple(single), ((names.HTTP, requests),) if requests else ())


def _sort(one: _Found, base: str, labels: Mapping[str, str], position: int) -> None:
    one.model_name = one.model_name or labels.get("model_name")
    one.pid_copies |= "pid" in labels
    one.engine_label |= "engine" in labels
    identity = tuple(sorted((k, v) for k, v in labels.items() if k != "pid"))
    one.families.setdefault(base, {}).setdefault(identity, []).append(position)


def _engine(
    name: str,
    one: _Found,
    info: Mapping[str, str],
    counted: tuple[int, ...],
    configured_blocks: int | None,
) -> EngineLayout:
    found = {key: _members(one, source) for key, source in names.FIELDS.items()}
    found["created"] = _family(one, names.Source((names.CREATED,)), names.CREATED)
    alone = {key for key, members in found.items() if [len(m) for m in members] == [1]}
    connector = not names.CONNECTOR.isdisjoint(one.families) or info_metric.offloads(info)
    dialect = _dialect(one)
    return EngineLayout(
        single=tuple((key, members[0][0]) for key, members in found.items() if key in alone),
        summed=tuple(p for p in found.items() if p[1] and p[0] not in alone),
        engine=name,
        facts={
            "engine": name,
            "model_name": one.model_name,
            "naming": one.naming,
            "connector": connector,
            **info_metric.facts(info),
        },
        claims=info_metric.claims(
            info,
            configured_blocks,
            counted[-1:] if dialect is Dialect.NULL_FREE else counted,
            dialect,
        ),
        block_size_tokens=info_metric.integer(info.get("block_size")),
        pool_tokens=info_metric.integer(info.get("kv_cache_size_tokens")),
        # 0.8.x had the engine label on its gauges but not yet on its info metric.
        hits_in_blocks=dialect is Dialect.NULL_COUNTED and bool(info) and "engine" not in info,
        problems=tuple(_engine_problems(one)),
    )


def _members(one: _Found, source: names.Source) -> Members:
    families = [members for name in source.names if (members := _family(one, source, name))]
    if source.total:
        return tuple(member for members in families for member in members)
    # Of two spellings of one gauge, one may be copied by pid and the other not (0.9.2 to 0.10.2).
    return min(families, key=lambda members: max(map(len, members)), default=())


def _family(one: _Found, source: names.Source, name: str) -> Members:
    series = {
        identity: tuple(where) if one.pid_copies else tuple(where[:1])
        for identity, where in one.families.get(name, {}).items()
    }
    if source.label is None and name not in names.CONNECTOR:
        return tuple(series.values())[:1]  # the first stands, as in Prometheus
    return tuple(
        where
        for identity, where in series.items()
        if not source.members or dict(identity).get(source.label or "") in source.members
    )


def _dialect(one: _Found) -> Dialect:
    new, old = (name in one.families for name in names.USAGE)
    if new:
        return Dialect.EITHER if old else Dialect.NULL_FREE
    v0 = names.SWAPPED in one.families or not one.engine_label
    return Dialect.V0 if v0 else Dialect.NULL_COUNTED


def _engine_problems(one: _Found) -> Iterable[Problem]:
    repeated = [
        family
        for source in names.FIELDS.values()
        for family in source.names
        if source.label is None
        and family not in names.CONNECTOR
        and (len(one.families.get(family, ())) > 1 or _doubled(one, family))
    ]
    if repeated:
        yield Problem(
            "duplicate_series",
            f"{repeated[0]} stands on the page several times for one engine: "
            "scrape each vLLM server directly, not an aggregating page",
        )
    if one.pid_copies:
        yield Problem(
            "pid_copies",
            "gauges carry a pid label, one copy for each API server (vLLM 0.9.2 to 0.11.0): "
            "the largest is taken; upgrade vLLM or use one API server",
        )


def _doubled(one: _Found, family: str) -> bool:
    copies = one.families.get(family, {}).values()
    return not one.pid_copies and any(len(where) > 1 for where in copies)


def _page_problems(engines: int) -> Iterable[Problem]:
    if engines > MAX_ENGINES:
        yield Problem(
            "too_many_engines",
            f"{engines} engines on one page, the first {MAX_ENGINES} are judged: "
            "scrape the servers one by one",
        )


def _cut(name: str) -> tuple[str, str]:
    for prefix in names.PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _engine_of(labels: Mapping[str, str]) -> str:
    engine = labels.get("engine", "0")
    replica = labels.get("ReplicaId")  # Ray Serve puts all its replicas on one page
    return engine if replica is None else f"{replica}/{engine}"


def _rank(engine: str) -> tuple[int, str]:
    return (_number(engine), engine) if engine.isdecimal() else (MAX_ENGINES, engine)


def _number(rank: str) -> int:
    return int(rank) if rank.isascii() and rank.isdecimal() else 0
