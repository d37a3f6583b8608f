"""What this host tells in a cycle: its GPUs as one view, whose processes sit on them, audits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from kvcache_exporter.audits.local import read_audits
from kvcache_exporter.gpus import Source
from kvcache_exporter.hosts.frozen import FrozenWatch
from kvcache_exporter.hosts.gpu_view import GpuView, gpu_pids, one_view, with_unowned
from kvcache_exporter.hosts.processes import HostProcesses, HostReader
from kvcache_exporter.hosts.xid import XidWatch
from kvcache_exporter.model import Audit, GpuSourceReading, Problem, Target

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GpuState:
    """What is known of this host's GPUs in a cycle."""

    sources: tuple[GpuSourceReading, ...] = ()
    view: GpuView = field(default_factory=GpuView)
    host: HostProcesses = field(default_factory=HostProcesses)
    audits: tuple[tuple[str, Audit], ...] = ()
    """(target, what the audit inside one of its engines on this host counted)."""

    def audits_of(self, target: str) -> tuple[Audit, ...]:
        """Return the audits on this host of one target."""
        return tuple(audit for name, audit in self.audits if name == target)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything wrong with sources, GPUs and their agreement."""
        of_sources = [source.problem for source in self.sources]
        of_gpus = [gpu.problem for gpu in self.view.gpus]
        known = [problem for problem in (*of_sources, *of_gpus) if problem is not None]
        return tuple(dict.fromkeys((*known, *self.view.problems)))

    @property
    def unowned_bytes(self) -> tuple[tuple[str, float], ...]:
        """(uuid, bytes) that no live engine holds, where the process lists tell."""
        pairs = [(gpu.uuid, gpu.unowned_bytes) for gpu in self.view.gpus]
        return tuple((uuid, float(size)) for uuid, size in pairs if size is not None)

    @classmethod
    def of(cls, sources: tuple[GpuSourceReading, ...], host: HostProcesses) -> GpuState:
        """Join what the sources say with who sits on the GPUs."""
        view = one_view(sources)
        return cls(sources, replace(view, gpus=with_unowned(view.gpus, host)), host)


class GpuMemory:
    """What has to be remembered of GPUs from cycle to cycle: frozen sources, Xid codes."""

    def __init__(self) -> None:
        self._watches: list[FrozenWatch] = []
        self._xids = XidWatch()

    def observe(self, state: GpuState, now: float, *, worked: bool) -> GpuState:
        """Drop the values of frozen sources, add new Xid codes; *worked*: some engine did."""
        state = self._thawed(state, worked)
        problems = (*state.view.problems, *self._xids.observe(state.view.gpus, now))
        return replace(state, view=replace(state.view, problems=problems))

    def _thawed(self, state: GpuState, worked: bool) -> GpuState:
        while len(self._watches) < len(state.sources):
            self._watches.append(FrozenWatch())
        pairs = zip(self._watches, state.sources, strict=False)
        sources = tuple(watch.observe(reading, moved=worked) for watch, reading in pairs)
        if sources == state.sources:
            return state
        return replace(GpuState.of(sources, state.host), audits=state.audits)


class HostGpus:
    """Reads the sources at once, each in a thread that nobody waits for at exit."""

    def __init__(self, sources: Sequence[Source], proc: Path = Path("/proc")) -> None:
        self._sources = tuple(sources)
        self._proc = proc
        self._host = HostReader(proc)
        self._auditors = HostReader(proc)

    async def read(self, targets: Sequence[Target], now: float) -> GpuState:
        """Read everything once; *now* is Unix seconds on the pipeline's clock."""
        reads = (in_daemon_thread(partial(source.read, now)) for source in self._sources)
        readings = tuple(await asyncio.gather(*reads))
        return await in_daemon_thread(partial(self._join, readings, targets, now))

    def close(self) -> None:
        """Let go of the sources."""
        for source in self._sources:
            source.close()

    def _join(
        self, readings: tuple[GpuSourceReading, ...], targets: Sequence[Target], now: float
    ) -> GpuState:
        gpus = one_view(readings).gpus
        urls = {target.name: target.url for target in targets}
        host = self._host.read(gpu_pids(gpus), urls, now) if gpus else HostProcesses()
        return replace(GpuState.of(readings, host), audits=self._audits(urls, now))

    def _audits(self, urls: Mapping[str, str], now: float) -> tuple[tuple[str, Audit], ...]:
        """Ask the audits of this host; believe those whose process belongs to a target."""
        found = read_audits(self._proc)
        owners = self._auditors.read([one.pid for one in found], urls, now).owners if found else {}
        return tuple((owners[one.pid].target, one) for one in found if one.pid in owners)


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Run *work* beside the loop; an executor's thread would hold up exit while its call hangs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast(T, result))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:  # handed to whoever awaits
            error = raised
        with suppress(RuntimeError):  # the loop has ended meanwhile; nobody waits any more
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=run, name="gpus", daemon=True).start()
    return await done
