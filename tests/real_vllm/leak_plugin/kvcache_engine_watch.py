"""A vLLM plugin for tests: an engine that is slower, and tells what happens in it.

With ``KVCACHE_WATCH=FILE`` the engine process appends a JSON line to that file each second:
``{"time", "steps", "abort", "finish", "preemption", "free", "referenced", "pool"}``, the first
four counted since the start, the blocks counted one by one in the engine's thread. SIGUSR2 makes
it append the stacks of all its threads to ``FILE.stacks``. ``KVCACHE_STEP_SECONDS`` makes each step
wait so long before it begins, and its worker sleep between two looks for work rather than spin, so
that an engine which is always busy leaves the processor to others, as one on a GPU does.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
from collections import Counter

from kvcache_leak_injector import kind_of

EVERY_SECONDS = 1.0
LOOK_SECONDS = 0.001


class Watch:
    """What happened in one engine process."""

    def __init__(self, path):
        self.path = path
        self.seen = Counter(steps=0, abort=0, finish=0, preemption=0)
        self.due = 0.0

    def step(self, pool):
        """Count a step, and write what was seen once a second."""
        self.seen["steps"] += 1
        if time.time() < self.due:
            return
        self.due = time.time() + EVERY_SECONDS
        referenced = sum(b.ref_cnt > 0 for b in pool.blocks if b is not pool.null_block)
        free = pool.free_block_queue.num_free_blocks
        blocks = {"free": free, "referenced": referenced, "pool": pool.num_gpu_blocks - 1}
        with open(self.path, "a") as file:
            file.write(json.dumps({"time": time.time(), **self.seen, **blocks}) + "\n")


def register():
    """Patch vLLM in the process that loads this; called by vLLM, possibly more than once."""
    path = os.environ.get("KVCACHE_WATCH")
    if not path:
        return
    from vllm.distributed.device_communicators import shm_broadcast
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler

    if getattr(Scheduler.schedule, "watch", None):
        return
    watch = Watch(path)
    wait = float(os.environ.get("KVCACHE_STEP_SECONDS", "0"))
    schedule = Scheduler.schedule
    if wait:
        shm_broadcast.sched_yield = lambda: time.sleep(LOOK_SECONDS)

    def watched_schedule(self, *args, **kwargs):
        time.sleep(wait)
        watch.step(self.kv_cache_manager.block_pool)
        return schedule(self, *args, **kwargs)

    watched_schedule.watch = watch
    Scheduler.schedule = watched_schedule
    for name in ("free", "pop_blocks_for_free"):
        setattr(KVCacheManager, name, counted(getattr(KVCacheManager, name), watch.seen))
    faulthandler.register(signal.SIGUSR2, file=open(path + ".stacks", "a"))  # noqa: SIM115


def counted(free, seen):
    """Wrap a way to free a request's blocks."""

    def free_and_count(self, request):
        seen[kind_of(request)] += 1
        return free(self, request)

    return free_and_count
