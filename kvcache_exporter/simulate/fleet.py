"""Several simulated servers on one virtual clock, and the GPUs they run on."""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from kvcache_exporter.model import GpuReading, GpuSourceReading

from .cast import Member
from .engine import Engine
from .site import Site

GPU_BYTES = 80 << 30
POOL_BYTES = 48 << 30
WEIGHT_BYTES = 22 << 30
WARM_UP_BYTES = 600 << 20
"""Graphs and workspaces that the first requests allocate; nothing moves afterwards."""


@dataclass(slots=True)
class Fleet:
    """The cast on one virtual clock, `start_time` being unix seconds at its zero."""

    cast: tuple[Member, ...]
    start_time: float = 1.8e9
    clock: float = 0.0
    sites: dict[str, Site] = field(default_factory=dict)
    engines: dict[str, Engine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for member in self.cast:
            start_time = self.start_time + member.deployed_seconds
            seed = crc32(member.name.encode())
            engine = Engine(member.config, member.workload, seed, start_time)
            self.engines[member.name] = engine
            self.sites[member.name] = Site([engine])

    @property
    def time(self) -> float:
        """Virtual unix seconds now."""
        return self.start_time + self.clock

    @property
    def deployed(self) -> tuple[str, ...]:
        """Names of the servers that exist by now."""
        return tuple(m.name for m in self.cast if m.deployed_seconds <= self.clock)

    def advance(self, seconds: float) -> None:
        """Let virtual time pass for everybody, and what is due happen."""
        self.clock += seconds
        for member in self.cast:
            engine, age = self.engines[member.name], self.clock - member.deployed_seconds
            for due, act in member.events:
                if engine.clock < due <= age:
                    engine.advance(due - engine.clock)
                    act(engine)
            engine.advance(max(0.0, age - engine.clock))

    def read_gpus(self) -> GpuSourceReading:
        """Read what the driver shows: a line that is flat, whatever happens to the blocks."""
        gpus = tuple(self._gpu(index, self.engines[name]) for index, name in enumerate(self.sites))
        return GpuSourceReading("simulated", self.time, up=True, gpus=gpus, expected=len(gpus))

    def gpu_uuid(self, name: str) -> str:
        """Name the GPU that a member runs on."""
        return _uuid(list(self.sites).index(name))

    @staticmethod
    def _gpu(index: int, engine: Engine) -> GpuReading:
        used = WEIGHT_BYTES + POOL_BYTES + (WARM_UP_BYTES if engine.clock > 300 else 0)
        return GpuReading(
            uuid=_uuid(index),
            source="simulated",
            index=index,
            model="Simulated 80GB",
            total_bytes=GPU_BYTES,
            used_bytes=used,
            free_bytes=GPU_BYTES - used,
        )


def _uuid(index: int) -> str:
    return f"GPU-51e00000-0000-4000-8000-{index:012d}"
