"""From a scheduler's insides to counts: what is copied in a step, and what is worked out later.

``snapshot`` runs in the engine's thread between two steps, so it only copies lists (C speed, some
nanoseconds a block). ``count`` goes through them in a thread of its own, a few at a time. Object
paths are those of vLLM 0.8.5 to 0.32, read in its source:

* block tables: ``kv_cache_manager.req_to_blocks`` (0.8.5), ``.single_type_manager.req_to_blocks``
  (0.9.0), ``.coordinator.single_type_managers[*].req_to_blocks`` (since 0.9.1);
* blocks parked until in-flight steps end: ``scheduler.deferred_frees`` (since 0.24).

A block is orphaned when it is out of the free queue, yet in nobody's table and not parked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

RUNNING, REMOTE, STREAMING, WAITING = "running", "remote_load", "streaming", "waiting"
FINISHED, GHOST, PARKED = "finished_delayed", "ghost", "parked"
OWNERS = (RUNNING, REMOTE, STREAMING, WAITING, FINISHED, GHOST, PARKED)
"""A block that several share is counted for the first of them."""

CHUNK_BLOCKS = 1024
"""Counted in one go, some tenths of a ms: the engine waits so long for Python's lock at most."""

_BY_STATUS = {
    "RUNNING": RUNNING,
    "WAITING_FOR_REMOTE_KVS": REMOTE,
    "WAITING_FOR_STREAMING_REQ": STREAMING,
}


class UnsupportedError(Exception):
    """The engine's insides are not what this release of ours knows."""


@dataclass(frozen=True, slots=True)
class Table:
    """A copy of one request's blocks in one pool; counting uses it up."""

    pool: int
    request_id: str | None
    """Never leaves this process; None = blocks that are parked."""
    blocks: list[Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Copies of what the scheduler holds at one moment between two steps."""

    time: float
    tables: list[Table]
    statuses: Mapping[str, str]
    arrivals: Mapping[str, float]
    nulls: tuple[int, ...]
    """Id of each pool's null block."""
    sizes: tuple[int, ...]
    """Blocks of each pool, the null block included."""
    free_blocks: int
    pools: tuple[Any, ...]

    @property
    def pool_blocks(self) -> int:
        """Blocks that can be used."""
        return sum(self.sizes) - len(self.sizes)


@dataclass(frozen=True, slots=True)
class Counts:
    """Blocks and requests by owner; ``orphaned`` are the blocks of nobody."""

    time: float
    pool_blocks: int
    free_blocks: int
    cached_blocks: int
    """Free blocks that still hold a prefix, as they are while this is counted."""
    orphaned: int
    double_booked: int
    """Free and in a table at once, if nothing is orphaned: owners and free are more than the pool.
    Two requests may then write to one block."""
    owners: Mapping[str, int]
    requests: Mapping[str, int] = field(default_factory=dict)
    oldest_seconds: Mapping[str, float] = field(default_factory=dict)


def snapshot(scheduler: Any, time: float) -> Snapshot:
    """Copy what is needed; raise UnsupportedError where it is not there."""
    try:
        manager = scheduler.kv_cache_manager
        pools = block_pools(manager)
        places = {id(pool): place for place, pool in enumerate(pools)}
        tables = [
            Table(places[id(pool)], request_id, blocks[:])
            for pool, table in _tables(manager)
            for request_id, blocks in list(table.items())
        ]
        # Only the main pool's blocks are written by steps in flight, so only these are parked.
        main = places[id(manager.block_pool)]
        tables += [Table(main, None, blocks[:]) for _, blocks in list(_parked(scheduler))]
        requests = list(scheduler.requests.items())
        return Snapshot(
            time=time,
            tables=tables,
            statuses={key: request.status.name for key, request in requests},
            arrivals={key: request.arrival_time for key, request in requests},
            nulls=tuple(pool.null_block.block_id for pool in pools),
            sizes=tuple(pool.num_gpu_blocks for pool in pools),
            free_blocks=sum(pool.free_block_queue.num_free_blocks for pool in pools),
            pools=tuple(pools),
        )
    except AttributeError as error:
        raise UnsupportedError(f"vLLM has changed inside: {error}") from None


def count(seen: Snapshot, baseline: int = 0, pause: Callable[[], None] = lambda: None) -> Counts:
    """Count owners, with a *pause* after each chunk; uses up the tables of *seen*.

    *baseline* blocks were set aside when the engine started.
    """
    owners = _owners(seen, pause)
    nobodys = seen.pool_blocks - seen.free_blocks - sum(owners.values()) - baseline
    requests, oldest = _requests(seen)
    return Counts(
        time=seen.time,
        pool_blocks=seen.pool_blocks,
        free_blocks=seen.free_blocks,
        cached_blocks=min(seen.free_blocks, _cached(seen, pause)),
        orphaned=max(0, nobodys),
        double_booked=max(0, -nobodys),
        owners=owners,
        requests=requests,
        oldest_seconds=oldest,
    )


def nobodys_blocks(seen: Snapshot) -> int:
    """Return the blocks that are not free and nobody's; uses up the tables of *seen*."""
    owned = sum(_owners(seen, lambda: None).values())
    return max(0, seen.pool_blocks - seen.free_blocks - owned)


def _owners(seen: Snapshot, pause: Callable[[], None]) -> dict[str, int]:
    owner_of = [bytearray(size) for size in seen.sizes]
    for owner, table in sorted(_by_owner(seen), key=lambda pair: -pair[0]):
        marks = owner_of[table.pool]
        for chunk in _chunks(table.blocks):
            for block in chunk:
                marks[block.block_id] = owner
            pause()
    for marks, null in zip(owner_of, seen.nulls, strict=True):
        marks[null] = 0
    return {
        name: sum(marks.count(number) for marks in owner_of)
        for number, name in enumerate(OWNERS, 1)
    }


def _cached(seen: Snapshot, pause: Callable[[], None]) -> int:
    """Count blocks that nobody refers to and that can still be hit."""
    cached = 0
    for pool in seen.pools:
        for start in range(0, pool.num_gpu_blocks, CHUNK_BLOCKS):
            chunk = pool.blocks[start : start + CHUNK_BLOCKS]
            cached += len([b for b in chunk if not b.ref_cnt and b.block_hash is not None])
            pause()
    return cached


def _by_owner(seen: Snapshot) -> Iterator[tuple[int, Table]]:
    """Yield (place of the owner in OWNERS, from 1, table)."""
    for table in seen.tables:
        known = table.request_id is not None
        owner = _owner(seen.statuses.get(table.request_id or "")) if known else PARKED
        yield OWNERS.index(owner) + 1, table


def _chunks(blocks: list[Any]) -> Iterator[list[Any]]:
    """Take a list apart from its end, so that it is also let go of in pieces."""
    while blocks:
        chunk = blocks[-CHUNK_BLOCKS:]
        del blocks[-CHUNK_BLOCKS:]
        yield chunk


def block_pools(manager: Any) -> list[Any]:
    """Return the distinct pools: one, or a second on the host with HiSparse."""
    found = [getattr(one, "block_pool", None) for one in _single_managers(manager)]
    pools = {id(pool): pool for pool in [*found, manager.block_pool] if pool is not None}
    return list(pools.values())


def _tables(manager: Any) -> list[tuple[Any, Mapping[str, list[Any]]]]:
    """Return (pool, block tables) of every KV cache group."""
    holders = _single_managers(manager) or [manager]
    main = manager.block_pool
    return [(getattr(one, "block_pool", None) or main, one.req_to_blocks) for one in holders]


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
