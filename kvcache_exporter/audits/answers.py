"""What audits inside engines say: their answers read, and matched with the engines of a target."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kvcache_exporter.model import Audit, Problem, Scrape, Target

MAX_ENGINES = 64
MAX_COUNT = 2**53
MAX_AGE_SECONDS = 180.0
"""A pool of a million blocks is sampled about once a minute; what is older comes from a hang."""
MAX_OWNERS = 16
_NOT_A_NAME = re.compile(r"[^a-z_]+")

T = TypeVar("T")


def parse(body: bytes) -> Audit | None:
    """Read an answer; None for anything that is not an audit's."""
    try:
        told = json.loads(body)
        return _audit(told) if told["format"] == 1 else None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def silent(engine: str, reason: str, pid: int = 0) -> Audit:
    """Stand for an audit that should be there and did not answer."""
    return Audit(pid, engine, supported=False, reason=reason, heard=False)


def audit_targets(target: Target, engines: Sequence[str]) -> dict[str, Target]:
    """Return where to ask for each engine: its rank is added to the port, as the audit does."""
    ranks = [engine for engine in engines if engine.isascii() and engine.isdecimal()][:MAX_ENGINES]
    return {
        rank: replace(target, name=f"{target.name} audit {rank}", url=url, auth=None)
        for rank in ranks
        if (url := _add_to_port(target.audit_url or "", int(rank))) is not None
    }


def fetched(engine: str, scrape: Scrape) -> Audit:
    """Read what came back over TCP; an audit that failed says why."""
    audit = parse(scrape.body) if scrape.body is not None else None
    if audit is not None:
        return replace(audit, engine=engine)
    if scrape.problem is not None:
        return silent(engine, scrape.problem.text)
    return silent(engine, "what answers there is no audit: is the port right?")


def of_engine(audits: Iterable[Audit], engine: str, engines: int) -> Audit | None:
    """Find an engine's audit, one that counts if there is one; *engines* the target has."""
    audits = tuple(audits)
    mine = [one for one in audits if one.engine == engine]
    if not mine and engines == 1 and len({one.engine for one in audits}) == 1:
        mine = list(audits)  # a server of one engine may have a rank of its own in a larger group
    return max(mine, key=lambda one: one.supported, default=None)


def gone_blocks(audit: Audit) -> int | None:
    """Return the blocks that nobody alive owns at this moment; some may be on their way back."""
    orphaned = audit.orphaned_blocks
    return None if orphaned is None else orphaned + dict(audit.owners).get("ghost", 0)


def lost_blocks(audit: Audit) -> int | None:
    """Return those of them that will not come back; None while that cannot be told."""
    orphaned = audit.settled_orphaned_blocks
    stale = audit.age_seconds is not None and audit.age_seconds > MAX_AGE_SECONDS
    return None if orphaned is None or stale else orphaned + (audit.settled_ghost_blocks or 0)


def nothing_lost(audit: Audit | None) -> bool:
    """Whether every block in use belongs to a request that is alive, and has for long enough.

    Blocks that wait for a transfer which may never come prove nothing.
    """
    if audit is None or not audit.supported:
        return False
    owners = dict(audit.owners)
    held = owners.get("finished_delayed", 0) + owners.get("connector_pinned", 0)
    return lost_blocks(audit) == 0 and gone_blocks(audit) == 0 and not held


def blocks_by_owner(audit: Audit) -> tuple[tuple[str, int], ...]:
    """Return owners in the order in which they stack up to the pool; () while nothing is known."""
    free, orphaned = audit.free_blocks, audit.orphaned_blocks
    if free is None or orphaned is None:
        return ()
    cached = audit.cached_blocks or 0
    return (("orphaned", orphaned), *audit.owners, ("cached", cached), ("free", free - cached))


def mute(audits: Iterable[Audit]) -> Iterator[Problem]:
    """Yield what is wrong with audits that count nothing."""
    for one in audits:
        if not one.supported:
            text = f"the audit inside engine {one.engine} counts nothing: {one.reason}"
            code = "audit_unsupported" if one.heard else "audit_silent"
            yield Problem(code, f"{text} (docs/audit.md; KVCACHE_AUDIT=0 switches it off)")


def _add_to_port(url: str, rank: int) -> str | None:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = (parts.port or 80) + rank
    return parts._replace(netloc=f"{host}:{port}").geturl() if port < 65536 else None


def _audit(told: Mapping[str, Any]) -> Audit:
    supported = told["supported"] is True
    return Audit(
        pid=int(told["pid"]),
        engine=str(told["engine"])[:16],
        supported=supported,
        reason=None if supported else str(told.get("reason"))[:300],
        time=_number(told.get("time")),
        age_seconds=_number(told.get("age_seconds")),
        pool_blocks=_count(told.get("pool_blocks")),
        free_blocks=_count(told.get("free_blocks")),
        cached_blocks=_count(told.get("cached_blocks")),
        owners=_counts(told.get("owners")),
        requests=_counts(told.get("requests")),
        oldest_seconds=_ages(told.get("oldest_seconds")),
        orphaned_blocks=_count(told.get("orphaned_blocks")),
        double_booked_blocks=_count(told.get("double_booked_blocks")),
        settled_orphaned_blocks=_count(told.get("settled_orphaned_blocks")),
        settled_ghost_blocks=_count(told.get("settled_ghost_blocks")),
        orphaned_after=_counts(told.get("orphaned_after")),
    )


def _counts(told: Any) -> tuple[tuple[str, int], ...]:
    return _by_name(told, _count)


def _ages(told: Any) -> tuple[tuple[str, float], ...]:
    return _by_name(told, _number)


def _by_name(told: Any, read: Callable[[Any], T | None]) -> tuple[tuple[str, T], ...]:
    """Read values by name; names are bounded, for they become labels."""
    pairs = told.items() if isinstance(told, dict) else ()
    values = ((_NOT_A_NAME.sub("", name)[:32], read(value)) for name, value in pairs)
    known = {name: value for name, value in values if name and value is not None}
    return tuple(known.items())[:MAX_OWNERS]


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < MAX_COUNT else None


def _number(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and abs(value) < MAX_COUNT else None
