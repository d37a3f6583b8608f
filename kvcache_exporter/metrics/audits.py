"""What the audit inside an engine counts; no row for an engine that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvcache_exporter.audits.answers import blocks_by_owner
from kvcache_exporter.metrics._metric import Metric, Row, metric
from kvcache_exporter.model import Audit, EngineStatus


def _counted(
    name: str, help_text: str, value: Callable[[Audit], float | None]
) -> Metric[EngineStatus]:
    return metric(name, help_text, lambda one: value(one.audit) if one.audit else None)


def _by(
    label: str, pairs: Callable[[Audit], Iterable[tuple[str, float]]]
) -> Callable[[EngineStatus], Iterable[Row]]:
    def rows(one: EngineStatus) -> Iterable[Row]:
        return [
            (((label, name),), value) for name, value in (pairs(one.audit) if one.audit else ())
        ]

    return rows


METRICS: tuple[Metric[EngineStatus], ...] = (
    _counted(
        "kvcache_audit_up",
        "1 if the audit inside the engine counts, 0 if it cannot or does not answer.",
        lambda a: float(a.supported),
    ),
    _counted(
        "kvcache_audit_age_seconds",
        "Age of the newest count; it grows while the engine makes no step.",
        lambda a: a.age_seconds,
    ),
    Metric(
        "kvcache_audit_blocks",
        "KV blocks by owner, counted inside the engine; orphaned, cached and free ones included, "
        "so that all together are the pool.",
        _by("owner", blocks_by_owner),
        ("owner",),
    ),
    Metric(
        "kvcache_audit_requests",
        "Requests inside the engine, by what they are to their blocks.",
        _by("owner", lambda a: a.requests),
        ("owner",),
    ),
    Metric(
        "kvcache_audit_oldest_request_seconds",
        "Age of the oldest request of each kind inside the engine.",
        _by("owner", lambda a: a.oldest_seconds),
        ("owner",),
    ),
    _counted(
        "kvcache_audit_settled_orphaned_blocks",
        "Blocks that nobody refers to for longer than any free may lag: they are lost.",
        lambda a: a.settled_orphaned_blocks,
    ),
    _counted(
        "kvcache_audit_settled_ghost_blocks",
        "Blocks in the table of a request that is long gone: they are lost.",
        lambda a: a.settled_ghost_blocks,
    ),
    _counted(
        "kvcache_audit_double_booked_blocks",
        "Blocks by which owners and free ones are more than the pool: the engine's own books are "
        "wrong, and two requests may write to one block.",
        lambda a: a.double_booked_blocks,
    ),
    Metric(
        "kvcache_audit_orphaned_after_blocks",
        "Blocks orphaned since the engine started, by the kind of event that came right before.",
        _by("event", lambda a: a.orphaned_after),
        ("event",),
    ),
)
