"""Which GPUs belong to which engine: by configuration, pod labels or process tree, not by guess."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvcache_exporter.hosts.gpu_view import with_unowned
from kvcache_exporter.hosts.processes import HostProcesses
from kvcache_exporter.model import GpuReading, Problem, Target


@dataclass(frozen=True, slots=True)
class Assignment:
    """The GPUs of a target's engines; an engine without entry: unknown."""

    gpus: Mapping[str, tuple[GpuReading, ...]] = field(default_factory=dict)
    by: str = "unknown"
    """configuration, pod, processes, recording, or memory (where it last was)."""
    problem: Problem | None = None


def assign(
    target: Target, engines: Sequence[str], gpus: Iterable[GpuReading], host: HostProcesses
) -> Assignment:
    """Find the GPUs of each of a target's *engines*; an engine's value never covers others' GPUs.

    The operator's word comes before pod labels, these before the process tree. Within a target of
    several engines only the process tree, or the operator's order, tells whose GPU is whose.
    """
    gpus = tuple(gpus)
    by_process = _by_process(target.name, engines, gpus, host)
    if target.gpu_uuids:
        return _by_configuration(target, engines, gpus, by_process)
    in_pod = _in_pod(target, gpus)
    if in_pod and len(engines) == 1:
        return Assignment({engines[0]: in_pod}, "pod")
    if by_process:
        return Assignment(by_process, "processes")
    if shared := in_pod or _on_process(target.name, gpus, host):
        return Assignment(problem=_several_engines(len(shared), len(engines)))
    return Assignment(problem=host.problems.get(target.name))


def assign_recorded(
    engines: Sequence[str], gpus: Sequence[GpuReading], *, alive: bool
) -> Assignment:
    """Assign the GPUs of a recording, which names no owners: one engine has them all.

    *alive*: the page was there. A live engine without a process on any GPU shows that the
    recorder could not see processes.
    """
    complete = any(gpu.processes for gpu in gpus) or not alive
    gpus = with_unowned(gpus, HostProcesses(complete=complete))
    return Assignment({engines[0]: gpus} if len(engines) == 1 and gpus else {}, "recording")


def gpus_of_target(
    target: Target, gpus: Iterable[GpuReading], host: HostProcesses
) -> tuple[GpuReading, ...]:
    """Return the GPUs of a target, whichever of its engines has them; () = unknown."""
    gpus = tuple(gpus)
    configured = tuple(gpu for gpu in gpus if gpu.uuid in target.gpu_uuids)
    return configured or _in_pod(target, gpus) or _on_process(target.name, gpus, host)


def _by_process(
    target: str, engines: Sequence[str], gpus: Iterable[GpuReading], host: HostProcesses
) -> dict[str, tuple[GpuReading, ...]]:
    found: dict[str, tuple[GpuReading, ...]] = {}
    for gpu in gpus:
        for engine in engines:
            ours = tuple(
                process
                for process in gpu.processes or ()
                if (owner := host.owners.get(process.pid)) is not None
                and owner.target == target
                and (len(engines) == 1 or owner.engine == engine)
            )
            if ours:  # on a shared GPU an engine sees its own processes only
                found[engine] = (*found.get(engine, ()), replace(gpu, processes=ours))
    return found


def _on_process(
    target: str, gpus: Iterable[GpuReading], host: HostProcesses
) -> tuple[GpuReading, ...]:
    ours = {pid for pid, owner in host.owners.items() if owner.target == target}
    return tuple(gpu for gpu in gpus if ours & {process.pid for process in gpu.processes or ()})


def _by_configuration(
    target: Target,
    engines: Sequence[str],
    gpus: Sequence[GpuReading],
    by_process: Mapping[str, tuple[GpuReading, ...]],
) -> Assignment:
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    named = [by_uuid[uuid] for uuid in target.gpu_uuids if uuid in by_uuid]
    missing = [uuid for uuid in target.gpu_uuids if uuid not in by_uuid]
    problem = _not_seen(missing) if missing else None
    if len(engines) == 1:
        return Assignment({engines[0]: tuple(named)} if named else {}, "configuration", problem)
    if by_process:
        chosen = {
            e: tuple(g for g in its if g.uuid in target.gpu_uuids) for e, its in by_process.items()
        }
        return Assignment({e: its for e, its in chosen.items() if its}, "configuration", problem)
    if missing or not engines or len(named) % len(engines):
        reason = problem or _several_engines(len(named), len(engines))
        return Assignment({}, "configuration", reason)
    share = len(named) // len(engines)
    parts = {e: tuple(named[i * share : (i + 1) * share]) for i, e in enumerate(engines)}
    return Assignment(parts, "configuration")


def _in_pod(target: Target, gpus: Iterable[GpuReading]) -> tuple[GpuReading, ...]:
    labels = dict(target.labels)
    pod = (labels.get("namespace", ""), labels.get("pod", ""))
    return tuple(gpu for gpu in gpus if all(pod) and pod in gpu.pods)


def _not_seen(uuids: Sequence[str]) -> Problem:
    return Problem(
        "gpu_not_seen",
        f"no source sees {', '.join(uuids)}, which the configuration gives to this target: compare "
        "`nvidia-smi -L` (a UUID changes with the card, and with each new MIG partition)",
    )


def _several_engines(gpus: int, engines: int) -> Problem:
    return Problem(
        "gpus_of_engine_unknown",
        f"{gpus} GPUs belong to {engines} engines together, and nothing here tells which to which: "
        "list `gpu_uuids` engine by engine, or run the exporter on the host with `hostPID: true`",
    )
