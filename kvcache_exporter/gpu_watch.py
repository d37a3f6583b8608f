"""All GPU sources of one cycle, joined: one view of the GPUs, and whose processes sit on them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from kvcache_exporter.gpus import Source
from kvcache_exporter.merge import GpuView, gpu_pids, one_view, unowned_bytes
from kvcache_exporter.model import GpuSourceReading, Problem, Target
from kvcache_exporter.processes import HostProcesses, read_host

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GpuState:
    """What is known of this host's GPUs in a cycle."""

    sources: tuple[GpuSourceReading, ...] = ()
    view: GpuView = field(default_factory=GpuView)
    host: HostProcesses = field(default_factory=HostProcesses)

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
        pairs = [(gpu.uuid, unowned_bytes(gpu, self.host)) for gpu in self.view.gpus]
        return tuple((uuid, float(size)) for uuid, size in pairs if size is not None)


class HostGpus:
    """Reads the sources one after the other in a thread that nobody waits for at exit."""

    def __init__(self, sources: Sequence[Source], proc: Path = Path("/proc")) -> None:
        self._sources = tuple(sources)
        self._proc = proc

    async def read(self, targets: Sequence[Target], now: float) -> GpuState:
        """Read everything once; *now* is Unix seconds on the pipeline's clock."""
        return await in_daemon_thread(lambda: self._read(targets, now))

    def close(self) -> None:
        """Let go of the sources."""
        for source in self._sources:
            source.close()

    def _read(self, targets: Sequence[Target], now: float) -> GpuState:
        readings = tuple(source.read(now) for source in self._sources)
        view = one_view(readings)
        pids = gpu_pids(view.gpus)
        host = HostProcesses()
        if view.gpus:
            host = read_host(self._proc, pids, {target.name: target.url for target in targets})
        return GpuState(readings, view, host)


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
