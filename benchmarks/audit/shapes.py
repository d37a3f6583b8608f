"""A scheduler with a full pool, in the shape of vLLM 0.32's."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

REQUESTS = 256


@dataclass(slots=True, eq=False)
class Block:
    """As vLLM's KVCacheBlock, as far as the audit looks at it."""

    block_id: int
    ref_cnt: int = 0
    block_hash: object = None


@dataclass(slots=True, eq=False, weakref_slot=True)
class Manager:
    """A KV cache manager."""

    block_pool: Any
    coordinator: Any


class Scheduler:
    """All *blocks* of its pool are held, in the order of a pool that has been in use for long."""

    def __init__(self, blocks: int) -> None:
        pool_blocks = [Block(number) for number in range(blocks + 1)]
        held = pool_blocks[1:]
        random.Random(1).shuffle(held)
        each = -(-blocks // REQUESTS) or 1
        tables = {str(at): held[at : at + each] for at in range(0, blocks, each)}
        for block in held:
            block.ref_cnt = 1
        pool = SimpleNamespace(
            blocks=pool_blocks,
            num_gpu_blocks=blocks + 1,
            null_block=pool_blocks[0],
            free_block_queue=SimpleNamespace(num_free_blocks=0),
        )
        single = SimpleNamespace(req_to_blocks=tables, block_pool=pool)
        running = SimpleNamespace(name="RUNNING")
        self.requests: dict[str, Any] = {
            key: SimpleNamespace(status=running, arrival_time=0.0) for key in tables
        }
        self.kv_cache_manager = Manager(
            block_pool=pool, coordinator=SimpleNamespace(single_type_managers=(single,))
        )
        self.deferred_frees: deque[Any] = deque()
        self.connector = None

    def has_requests(self) -> bool:
        """Say that it is busy, so that it is sampled in a step."""
        return True
