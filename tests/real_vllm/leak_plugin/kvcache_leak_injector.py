"""A vLLM plugin for tests: requests lose blocks on purpose, and the truth is written down.

With ``KVCACHE_LEAK_CONTROL=FILE`` it reads ``{"finish": p, "abort": p}`` from that file each
second: the probability that a finished request loses its last block, and that an aborted one loses
all of them. Each loss takes one reference too many, so nobody ever gives the block back.
``FILE.truth`` gets JSON lines ``{"time", "referenced", "orphaned", "free"}``; orphaned means
referenced but in no request's block table.
"""

from __future__ import annotations

import json
import os
import random
import time


class Injector:
    """State of one engine process."""

    def __init__(self, control):
        self.control = control
        self.chances = {}
        self.read_at = 0.0
        self.written_at = 0.0
        self.random = random.Random(7)

    def chance(self, kind):
        """Return the probability of a loss at an end of this *kind*, re-read each second."""
        if time.time() - self.read_at > 1.0:
            self.read_at = time.time()
            try:
                with open(self.control) as file:
                    self.chances = json.load(file)
            except (OSError, ValueError):
                pass
        return self.chances.get(kind, 0.0)

    def lose(self, manager, request):
        """Take references that nobody will give back, before the request is freed."""
        aborted = "ABORT" in str(request.status)
        if self.random.random() >= self.chance("abort" if aborted else "finish"):
            return
        blocks = [
            block
            for single in manager.coordinator.single_type_managers
            for block in single.req_to_blocks.get(request.request_id, [])
            if not block.is_null
        ]
        for block in blocks if aborted else blocks[-1:]:
            block.ref_cnt += 1

    def write_truth(self, manager):
        """Append what is true now, at most five times a second."""
        if time.time() - self.written_at < 0.2:
            return
        self.written_at = time.time()
        owned = {
            block.block_id
            for single in manager.coordinator.single_type_managers
            for blocks in single.req_to_blocks.values()
            for block in blocks
        }
        pool = manager.block_pool
        referenced = [b.block_id for b in pool.blocks if b.ref_cnt > 0 and not b.is_null]
        truth = {
            "time": self.written_at,
            "referenced": len(referenced),
            "orphaned": sum(block not in owned for block in referenced),
            "free": pool.get_num_free_blocks(),
        }
        with open(self.control + ".truth", "a") as file:
            file.write(json.dumps(truth) + "\n")


def register():
    """Patch vLLM in the process that loads this; called by vLLM, possibly more than once."""
    control = os.environ.get("KVCACHE_LEAK_CONTROL")
    if not control:
        return
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    if getattr(KVCacheManager.free, "injector", None):
        return
    injector, free = Injector(control), KVCacheManager.free

    def leaky_free(self, request):
        injector.lose(self, request)
        result = free(self, request)
        injector.write_truth(self)
        return result

    leaky_free.injector = injector
    KVCacheManager.free = leaky_free
