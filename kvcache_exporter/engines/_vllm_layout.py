"""What the series of a page mean, worked out once and reused while the same series come back.

A page's names and labels hardly ever change from scrape to scrape; only its values do. So all
sorting is done here, and reading a page is then a handful of sums by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kvcache_exporter.capacity import Claims, Dialect
from kvcache_exporter.engines import _vllm_names as names
from kvcache_exporter.model import Problem

MAX_ENGINES = 64

Series = tuple[str, Mapping[str, str]]
Positions = tuple[tuple[int, ...], ...]
"""To be summed; within one inner tuple (copies of one series) the largest counts."""


@dataclass(frozen=True, slots=True)
class EngineLayout:
    """One engine: where its fields stand on the page, and what its labels say for good."""

    engine: str
    naming: str
    model_name: str | None
    fields: Mapping[str, Positions]
    info: Mapping[str, str]
    claims: Claims
    connector: bool
    hits_in_blocks: bool
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole page."""

    engines: tuple[EngineLayout, ...] = ()
    process: Mapping[str, Positions] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class _Found:
    """The series of one engine while the page is sorted: family and label block to positions."""

    naming: str
    model_name: str | None = None
    families: dict[str, dict[tuple[tuple[str, str], ...], list[int]]] = field(default_factory=dict)
    pid_copies: bool = False


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
    return Layout(
        tuple(
            _engine(name, one, info, len(ranked), configured_blocks)
            for name, one in ranked[:MAX_ENGINES]
        ),
        {name: tuple((position,) for position in where) for name, where in process.items()},
        tuple(_page_problems(len(ranked))),
    )


def _sort(one: _Found, base: str, labels: Mapping[str, str], position: int) -> None:
    one.model_name = one.model_name or labels.get("model_name")
    one.pid_copies |= "pid" in labels
    identity = tuple(sorted((k, v) for k, v in labels.items() if k != "pid"))
    one.families.setdefault(base, {}).setdefault(identity, []).append(position)


def _engine(
    name: str,
    one: _Found,
    info: Mapping[str, Mapping[str, str]],
    engines: int,
    configured_blocks: int | None,
) -> EngineLayout:
    fields = {key: _positions(one, source) for key, source in names.FIELDS.items()}
    fields["created"] = _family(one, names.Source((names.CREATED,)), names.CREATED)
    facts = info.get(name, info.get("0", {}))
    connector = not names.CONNECTOR.isdisjoint(one.families)
    dialect = _dialect(one)
    # 0.8.x had the engine label on its gauges but not yet on its info metric.
    early = dialect is Dialect.NULL_COUNTED and bool(facts) and "engine" not in facts
    return EngineLayout(
        engine=name,
        naming=one.naming,
        model_name=one.model_name,
        fields={key: positions for key, positions in fields.items() if positions},
        info=facts,
        claims=_claims(facts, engines, configured_blocks, dialect),
        connector=connector or facts.get("kv_offloading_size", "None") not in ("None", ""),
        hits_in_blocks=early,
        problems=tuple(_engine_problems(one)),
    )


def _positions(one: _Found, source: names.Source) -> Positions:
    families = [p for name in source.names if (p := _family(one, source, name))]
    if source.total:
        return tuple(position for family in families for position in family)
    return families[0] if families else ()


def _family(one: _Found, source: names.Source, name: str) -> Positions:
    series = one.families.get(name, {})
    if source.label is None and name not in names.CONNECTOR:
        return tuple(map(tuple, list(series.values())[:1]))  # the first stands, as in Prometheus
    return tuple(
        tuple(where)
        for identity, where in series.items()
        if not source.members or dict(identity).get(source.label or "") in source.members
    )


def _claims(
    info: Mapping[str, str], engines: int, configured: int | None, dialect: Dialect
) -> Claims:
    tokens, size = integer(info.get("kv_cache_size_tokens")), integer(info.get("block_size"))
    return Claims(
        label_blocks=integer(info.get("num_gpu_blocks")),
        token_blocks=tokens // size if tokens and size else None,
        configured_blocks=configured,
        engines=engines,
        dialect=dialect,
    )


def _dialect(one: _Found) -> Dialect:
    new, old = (name in one.families for name in names.USAGE)
    if new:
        return Dialect.EITHER if old else Dialect.NULL_FREE
    return Dialect.V0 if names.SWAPPED in one.families else Dialect.NULL_COUNTED


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
    return (int(engine) if engine.isascii() and engine.isdecimal() else MAX_ENGINES, engine)


def integer(text: str | None) -> int | None:
    """Read a positive integer from a label; "None" and other words say nothing."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 18:
        return None
    return int(text) or None
