"""From a scheduler's insides to counts: what is copied in a step, and what is worked out later.

``snapshot`` runs in the engine's thread between two steps, so it only copies lists (C speed, about
a nanosecond a block). ``count`` does the set arithmetic in a thread of its own. Object paths are
those of vLLM 0.8.5 to 0.32, read in its source:

* block tables: ``kv_cache_manager.req_to_blocks`` (0.8.5), ``.single_type_manager.req_to_blocks``
  (0.9.0), ``.coordinator.single_type_managers[*].req_to_blocks`` (since 0.9.1);
* blocks parked until in-flight steps end: ``scheduler.deferred_frees`` (since 0.24).

A block is orphaned when it is out of the free queue, yet in nobody's table and not parked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

RUNNING, REMOTE, STREAMING, WAITING = "running", "remote_load", "streaming", "waiting"
FINISHED, GHOST, PARKED = "finished_delayed", "ghost", "parked"
OWNERS = (RUNNING, REMOTE, STREAMING, WAITING, FINISHED, GHOST, PARKED)
"""A block that several share is counted for the first of them."""

_BY_STATUS = {
    "RUNNING": RUNNING,
    "WAITING_FOR_REMOTE_KVS": REMOTE,
    "WAITING_FOR_STREAMING_REQ": STREAMING,
}


class UnsupportedError(Exception):
    """The engine's insides are not what this release of ours knows."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Copies of what the scheduler holds at one moment between two steps."""

    time: float
    tables: tuple[tuple[str, list[Any]], ...]
    """(request id, blocks) for every table of every manager; the id never leaves this process."""
    statuses: Mapping[str, str]
    arrivals: Mapping[str, float]
    parked: list[Any]
    nulls: frozenset[int]
    pool_blocks: int
    free_blocks: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Blocks and requests by owner; ``orphaned`` are the blocks of nobody."""

    time: float
    pool_blocks: int
    free_blocks: int
    orphaned: int
    owners: Mapping[str, int]
    requests: Mapping[str, int] = field(default_factory=dict)
    oldest_seconds: Mapping[str, float] = field(default_factory=dict)


def snapshot(scheduler: Any, time: float) -> Snapshot:
    """Copy what is needed; raise UnsupportedError where it is not there."""
    try:
        manager = scheduler.kv_cache_manager
        tables = tuple(
            (request_id, blocks[:])
            for table in _tables(manager)
            for request_id, blocks in list(table.items())
        )
        requests = list(scheduler.requests.items())
        pools = block_pools(manager)
        return Snapshot(
            time=time,
            tables=tables,
            statuses={key: request.status.name for key, request in requests},
            arrivals={key: request.arrival_time for key, request in requests},
            parked=[b for _, blocks in list(_parked(scheduler)) for b in blocks],
            nulls=frozenset(id(pool.null_block) for pool in pools),
            pool_blocks=sum(pool.num_gpu_blocks - 1 for pool in pools),
            free_blocks=sum(pool.free_block_queue.num_free_blocks for pool in pools),
        )
    except AttributeError as error:
        raise UnsupportedError(f"vLLM has changed inside: {error}") from None


def count(seen: Snapshot, baseline: int = 0) -> Counts:
    """Count owners; *baseline* blocks were set aside when the engine started."""
    by_owner: dict[str, list[list[Any]]] = {owner: [] for owner in OWNERS}
    for request_id, blocks in seen.tables:
        by_owner[_owner(seen.statuses.get(request_id))].append(blocks)
    by_owner[PARKED].append(seen.parked)
    known: set[int] = set(seen.nulls)
    owners = {}
    for owner in OWNERS:
        before = len(known)
        for blocks in by_owner[owner]:
            known.update(map(id, blocks))
        owners[owner] = len(known) - before
    referenced = seen.pool_blocks - seen.free_blocks - baseline
    orphaned = referenced - sum(owners.values())
    return Counts(
        seen.time, seen.pool_blocks, seen.free_blocks, max(0, orphaned), owners, *_requests(seen)
    )


def block_pools(manager: Any) -> list[Any]:
    """Return the distinct pools: one, or a second on the host with HiSparse."""
    found = [getattr(one, "block_pool", None) for one in _single_managers(manager)]
    pools = {id(pool): pool for pool in [*found, manager.block_pool] if pool is not None}
    return list(pools.values())


def _tables(manager: Any) -> Iterable[Mapping[str, list[Any]]]:
    singles = _single_managers(manager)
    return [single.req_to_blocks for single in singles] if singles else [manager.req_to_blocks]


def _single_managers(manager: Any) -> list[Any]:
    coordinator = getattr(manager, "coordinator", None)
    if coordinator is not None:
        return list(coordinator.single_type_managers)
    single = getattr(manager, "single_type_manager", None)
    return [] if single is None else [single]


def _parked(scheduler: Any) -> Iterable[tuple[int, list[Any]]]:
    parked: Iterable[tuple[int, list[Any]]] = getattr(scheduler, "deferred_frees", ())
    return parked


def _owner(status: str | None) -> str:
    """Classify a table's owner by the status of its request; None = no such request any more."""
    if status is None:
        return GHOST
    if status.startswith("FINISHED"):
        return FINISHED
    return _BY_STATUS.get(status, WAITING)


def _requests(seen: Snapshot) -> tuple[dict[str, int], dict[str, float]]:
    """Count requests by class, and say how old the oldest of each is."""
    counts: dict[str, int] = {}
    oldest: dict[str, float] = {}
    for request_id, status in seen.statuses.items():
        owner = _owner(status)
        counts[owner] = counts.get(owner, 0) + 1
        age = seen.time - seen.arrivals[request_id]
        oldest[owner] = max(oldest.get(owner, 0.0), round(age, 1))
    return counts, oldest
