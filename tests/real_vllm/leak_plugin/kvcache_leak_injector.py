"""A vLLM plugin for tests: requests lose blocks on purpose, and the truth is written down.

With ``KVCACHE_LEAK_CONTROL=FILE`` it reads ``{"finish": p, "abort": p, "preemption": p}`` from that
file each second: the probability that a finished or preempted request loses its last block, and
that an aborted one loses all of them; ``"most"`` ends it at so many blocks. Each loss takes one
reference too many, so nobody ever gives the block back. ``FILE.truth`` gets a JSON line
``{"time", "orphaned"}`` whenever the number of lost blocks in no request's table has changed (one
that is cached still may be hit, and is somebody's until that request ends). The time is taken after
the change, in the engine's thread: whatever is sampled there later, and before the next line, must
see this number.
"""

from __future__ import annotations

import json
import math
import os
import random
import time


class Injector:
    """State of one engine process."""

    def __init__(self, control):
        self.control = control
        self.chances = {}
        self.read_at = 0.0
        self.lost = set()
        self.orphaned = 0
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
        kind = kind_of(request)
        if self.random.random() >= self.chance(kind):
            return
        if len(self.lost) >= self.chances.get("most", math.inf):
            return
        blocks = [
            block
            for table in tables(manager)
            for block in table.get(request.request_id, [])
            if not block.is_null
        ]
        for block in blocks if kind == "abort" else blocks[-1:]:
            block.ref_cnt += 1
            self.lost.add(block.block_id)

    def write_truth(self, manager):
        """Append what is true now, if that is new."""
        if not self.lost:
            return
        owned = {b.block_id for table in tables(manager) for bs in table.values() for b in bs}
        orphaned = len(self.lost - owned)
        if orphaned != self.orphaned:
            self.orphaned = orphaned
            with open(self.control + ".truth", "a") as file:
                file.write(json.dumps({"time": time.time(), "orphaned": orphaned}) + "\n")


def kind_of(request):
    """Say how a request ends that is being freed."""
    status = request.status.name
    if not status.startswith("FINISHED"):
        return "preemption"
    return "abort" if status == "FINISHED_ABORTED" else "finish"


def tables(manager):
    """Return the block tables of all KV cache groups."""
    return [single.req_to_blocks for single in manager.coordinator.single_type_managers]


def register():
    """Patch vLLM in the process that loads this; called by vLLM, possibly more than once."""
    control = os.environ.get("KVCACHE_LEAK_CONTROL")
    if not control:
        return
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    if getattr(KVCacheManager.free, "injector", None):
        return
    injector = Injector(control)
    free, allocate = KVCacheManager.free, KVCacheManager.allocate_slots

    def leaky_free(self, request):
        injector.lose(self, request)
        result = free(self, request)
        injector.write_truth(self)
        return result

    def noted_allocate(self, *args, **kwargs):
        result = allocate(self, *args, **kwargs)
        injector.write_truth(self)
        return result

    leaky_free.injector = injector
    KVCacheManager.free = leaky_free
    KVCacheManager.allocate_slots = noted_allocate
