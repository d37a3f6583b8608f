"""The two places in vLLM where the audit listens, patched so that nothing of it can reach vLLM."""

from __future__ import annotations

import logging
import os
import weakref
from contextlib import suppress
from typing import Any

from kvcache_exporter.vllm_plugin.auditor import Auditor, engine_rank
from kvcache_exporter.vllm_plugin.server import serve

log = logging.getLogger(__name__)

_MARK = "_kvcache_audit"


class Audits:
    """The auditors of this process by scheduler; another process after a fork starts anew."""

    def __init__(self) -> None:
        self._pid = 0
        self._by_scheduler: weakref.WeakKeyDictionary[Any, Auditor | None] = (
            weakref.WeakKeyDictionary()
        )
        self._by_manager: weakref.WeakKeyDictionary[Any, Auditor] = weakref.WeakKeyDictionary()

    def of(self, scheduler: Any) -> Auditor | None:
        """Return the auditor of *scheduler*, made and served at its first step; None = it failed.

        It is tried once: whatever fails would cost every step.
        """
        if self._pid != os.getpid():
            self.__init__()  # type: ignore[misc]
            self._pid = os.getpid()
        try:
            return self._by_scheduler[scheduler]
        except KeyError:
            self._by_scheduler[scheduler] = None
        auditor = self._by_scheduler[scheduler] = self._made(scheduler)
        return auditor

    def _made(self, scheduler: Any) -> Auditor:
        auditor = Auditor(scheduler)
        serve(auditor.report, engine_rank(scheduler))
        with suppress(AttributeError, TypeError):  # what is missing is told as unsupported
            self._by_manager[scheduler.kv_cache_manager] = auditor
        return auditor

    def of_manager(self, manager: Any) -> Auditor | None:
        """Return the auditor whose scheduler has this KV cache manager."""
        return self._by_manager.get(manager) if self._pid == os.getpid() else None


def patch() -> None:
    """Wrap ``Scheduler.make_stats`` and the ways to free a request's blocks, once.

    ``pop_blocks_for_free`` (since 0.24) is the way of a request whose blocks are parked first.
    """
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler

    if getattr(Scheduler.make_stats, _MARK, False):
        return
    audits = Audits()
    Scheduler.make_stats = _after_step(Scheduler.make_stats, audits)
    for name in ("free", "pop_blocks_for_free"):
        if hasattr(KVCacheManager, name):
            setattr(KVCacheManager, name, _at_free(getattr(KVCacheManager, name), audits))


def _after_step(make_stats: Any, audits: Audits) -> Any:
    def audited(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            auditor = audits.of(self)
            if auditor is not None:
                auditor.step()
        except Exception as error:  # whatever goes wrong in here, the engine goes on
            log.debug("kvcache audit: %s", error)
        return make_stats(self, *args, **kwargs)

    setattr(audited, _MARK, True)
    return audited


def _at_free(free: Any, audits: Audits) -> Any:
    def counted(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        with suppress(Exception):
            auditor = audits.of_manager(self)
            if auditor is not None:
                auditor.happened(_event(request.status.name))
        return free(self, request, *args, **kwargs)

    setattr(counted, _MARK, True)
    return counted


def _event(status: str) -> str:
    if status == "FINISHED_ABORTED":
        return "abort"
    if status.startswith("FINISHED"):
        return "request"
    return "transfer_error" if status == "WAITING_FOR_REMOTE_KVS" else "preemption"
