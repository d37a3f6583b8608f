"""One reading a GPU where several sources see it, and whose its memory is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kvcache_exporter.hosts.processes import HostProcesses, Owner
from kvcache_exporter.model import GpuReading, GpuSourceReading, Problem

TOLERANCE_BYTES = 256 << 20
TOLERANCE_RATIO = 0.02
"""How far two sources may be apart: dcgm-exporter's values are up to 30 s old by default."""

Key = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class GpuView:
    """One reading a GPU, and where its sources disagree."""

    gpus: tuple[GpuReading, ...] = ()
    problems: tuple[Problem, ...] = ()


def one_view(readings: Sequence[GpuSourceReading]) -> GpuView:
    """Take each GPU from the first source that is up and sees it; the others check it.

    What a check knows in addition (pod, Xid) is added; its memory sizes never are, since two
    sources in one series would look like growth.
    """
    gpus: dict[Key, GpuReading] = {}
    problems: list[Problem] = []
    for reading in sorted(readings, key=lambda reading: not reading.up):
        for gpu in reading.gpus:
            source = gpus.setdefault(_key(gpu), gpu)
            if source is gpu:
                continue
            gpus[_key(gpu)] = _completed(source, gpu)
            if reading.up and (problem := _disagreement(source, gpu)) is not None:
                problems.append(problem)
    problems += _missing_from_nvml(readings)
    return GpuView(tuple(gpus.values()), tuple(problems))


def gpu_pids(gpus: Iterable[GpuReading]) -> set[int]:
    """Every process on any GPU."""
    return {process.pid for gpu in gpus for process in gpu.processes or ()}


def engine_bytes(gpu: GpuReading, host: HostProcesses) -> dict[Owner, int]:
    """Memory on one GPU by live engine, as far as the driver tells it by process."""
    sums: dict[Owner, int] = {}
    for process in gpu.processes or ():
        owner = host.owners.get(process.pid)
        if owner is not None and process.used_bytes is not None:
            sums[owner] = sums.get(owner, 0) + process.used_bytes
    return sums


def unowned_bytes(gpu: GpuReading, host: HostProcesses) -> int | None:
    """Memory on one GPU that no live engine and no other living process holds.

    It is what the driver counts as used less what its processes hold, orphaned vLLM processes not
    counted as holders; a few MB of the driver's own remain on a healthy GPU. None where the
    process list does not tell, as in a pid namespace.
    """
    if gpu.used_bytes is None or gpu.processes is None or not host.complete:
        return None
    held = [process.used_bytes for process in gpu.processes if process.pid not in host.orphans]
    if None in held:
        return None
    return max(0, gpu.used_bytes - sum(size for size in held if size is not None))


def with_unowned(gpus: Iterable[GpuReading], host: HostProcesses) -> tuple[GpuReading, ...]:
    """Note on each GPU what nobody holds of it, and where an empty process list means nothing."""
    return tuple(
        replace(
            gpu,
            unowned_bytes=unowned_bytes(gpu, host),
            processes=gpu.processes or (gpu.processes if host.complete else None),
        )
        for gpu in gpus
    )


def _key(gpu: GpuReading) -> Key:
    """NVML and DCGM name a MIG slice differently; its GPU and instance are the same in both."""
    if gpu.parent_uuid is None or gpu.instance_id is None:
        return gpu.uuid, None
    return gpu.parent_uuid, gpu.instance_id


def _completed(source: GpuReading, other: GpuReading) -> GpuReading:
    pod = other if not source.pods else source
    return replace(
        source,
        namespace=pod.namespace,
        pod=pod.pod,
        container=pod.container,
        pods=pod.pods,
        xid=other.xid if source.xid is None else source.xid,
    )


def _disagreement(source: GpuReading, other: GpuReading) -> Problem | None:
    if source.used_bytes is None or other.used_bytes is None or source.source == other.source:
        return None
    allowed = max(TOLERANCE_BYTES, TOLERANCE_RATIO * (source.total_bytes or 0))
    if abs(source.used_bytes - other.used_bytes) <= allowed:
        return None
    return Problem(
        "gpu_sources_disagree",
        f"{source.uuid}: {source.source} says {source.used_bytes >> 20} MiB used, {other.source} "
        f"{other.used_bytes >> 20} MiB; {source.source} is shown. Check whether {other.source} is "
        "frozen (restart its exporter) or looks at another host",
    )


def _missing_from_nvml(readings: Sequence[GpuSourceReading]) -> list[Problem]:
    nvml = {_whole(gpu) for r in readings if r.source == "nvml" and r.up for gpu in r.gpus}
    problems = []
    for reading in readings:
        others = {_whole(gpu) for gpu in reading.gpus}
        if others & nvml and others - nvml:  # a page without any common GPU is of another host
            names = ", ".join(sorted(others - nvml))
            text = f"{reading.source} sees {names}, NVML does not: compare `nvidia-smi -L`"
            problems.append(Problem("gpu_sources_disagree", text))
    return problems


def _whole(gpu: GpuReading) -> str:
    return gpu.parent_uuid or gpu.uuid
