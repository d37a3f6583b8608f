"""Objects shaped like the insides of vLLM's scheduler in several releases, for the audit."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import Any


class Status(IntEnum):
    """As in vllm.v1.request."""

    WAITING = 1
    WAITING_FOR_REMOTE_KVS = 3
    WAITING_FOR_STREAMING_REQ = 4
    RUNNING = 5
    PREEMPTED = 6
    FINISHED_STOPPED = 7
    FINISHED_ABORTED = 9


@dataclass(eq=False)
class Block:
    block_id: int
    ref_cnt: int = 0
    block_hash: object = None
    is_null: bool = False


@dataclass(eq=False)
class Pool:
    """A pool of *size* blocks of which the first is the null block."""

    num_gpu_blocks: int
    blocks: list[Block] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = [Block(i) for i in range(self.num_gpu_blocks)]
        self.null_block = self.blocks[0]
        self.null_block.is_null = True
        self.unlisted: set[int] = set()
        """Blocks that are neither free nor referenced, as sink blocks were."""

    @property
    def free_block_queue(self) -> Any:
        free = [b for b in self.blocks[1:] if b.ref_cnt == 0 and b.block_id not in self.unlisted]
        return SimpleNamespace(num_free_blocks=len(free))

    def take(self, count: int) -> list[Block]:
        free = [b for b in self.blocks[1:] if b.ref_cnt == 0 and b.block_id not in self.unlisted]
        taken = random.Random(count).sample(free, count)
        for block in taken:
            block.ref_cnt += 1
        return taken


class Manager(SimpleNamespace):
    """A KV cache manager; a class of its own, since weak references are made to it."""

    __hash__ = object.__hash__


def request(status: Status, arrival: float = 0.0) -> Any:
    return SimpleNamespace(status=status, arrival_time=arrival)


class Scheduler:
    """One of the shapes; ``tables`` are the block tables, one for each KV cache group."""

    def __init__(self, release: str, pool_size: int = 101, groups: int = 1) -> None:
        self.pool = Pool(pool_size)
        self.tables: list[defaultdict[str, list[Block]]] = [
            defaultdict(list) for _ in range(groups)
        ]
        self.requests: dict[str, Any] = {}
        self.running: list[Any] = []
        self.connector = None
        self.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_rank=0))
        self.kv_cache_manager = self._manager(release)
        if release >= "0.24":
            self.deferred_frees: deque[tuple[int, list[Block]]] = deque()

    def _manager(self, release: str) -> Any:
        singles = [
            SimpleNamespace(req_to_blocks=table, block_pool=self.pool) for table in self.tables
        ]
        if release == "0.8.5":
            return Manager(block_pool=self.pool, req_to_blocks=self.tables[0])
        if release == "0.9.0":
            return Manager(block_pool=self.pool, single_type_manager=singles[0])
        coordinator = SimpleNamespace(single_type_managers=tuple(singles))
        return Manager(block_pool=self.pool, coordinator=coordinator)

    def has_requests(self) -> bool:
        return bool(self.requests)

    def give(self, key: str, status: Status | None, count: int, group: int = 0) -> list[Block]:
        """Let request *key* hold *count* new blocks; status None = the request is forgotten."""
        blocks = self.pool.take(count)
        self.tables[group][key] += blocks
        if status is not None:
            self.requests[key] = request(status)
        return blocks


RELEASES = ("0.8.5", "0.9.0", "0.9.1", "0.10.2", "0.17.1", "0.24.0", "0.32.0")
