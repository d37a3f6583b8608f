"""Which engine of which target a process on a GPU belongs to, read from this host's process tree.

vLLM names its processes: the API server listens, ``VLLM::EngineCore`` or ``VLLM::EngineCore_DPk``
is its child, ``VLLM::Worker...`` is a child of that; NVML names the worker, or the engine core
itself where it has no worker. So the way goes up from the few processes on a GPU and costs nothing
on a host with thousands of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from kvcache_exporter.hosts.listening import listening_inodes
from kvcache_exporter.hosts.procfs import (
    Process,
    ancestry,
    network_namespace,
    sees_every_pid,
    socket_inodes,
)
from kvcache_exporter.model import Problem

REREAD_SECONDS = 60.0
"""/proc/net/tcp costs 10 to 30 ms, however few sockets there are, so it is not read each cycle."""
ENGINE = re.compile(r"\S*::EngineCore(?:_DP(\d+))?")
ENGINE_OR_WORKER = re.compile(r"\S*::(?:EngineCor|Worker)")
SERVING = re.compile(r"vllm|python|(?:^|/)ray", re.IGNORECASE)
"""A parent that may well be an API server, even if it is process 1 of a container."""
REAPER = re.compile(
    r"(?:\S*/)?(?:systemd|init|tini|dumb-init|catatonit|conmon|containerd-shim\S*)(?:\s|$)"
)


Chain = tuple[Process, ...]
"""A process, its parent, and so on."""


class Owner(NamedTuple):
    """An engine; ``engine`` None = the process tree does not say which of the target's."""

    target: str
    engine: str | None


@dataclass(frozen=True, slots=True)
class HostProcesses:
    """The processes on this host's GPUs."""

    owners: Mapping[int, Owner] = field(default_factory=dict)
    """Engine by process id."""
    orphans: frozenset[int] = frozenset()
    """vLLM processes whose API server is gone, and processes that are gone themselves: on an H200
    NVML kept naming a killed process for as long as a child that it had forked lived."""
    complete: bool = False
    """Whether "no process" in NVML's lists means nobody; in a pid namespace they are empty."""
    problems: Mapping[str, Problem] = field(default_factory=dict)
    """By target that listens on this host: why it owns no process on a GPU."""


class HostReader:
    """Reads the host again when a process on a GPU has changed, or a parent of one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: object = None
        self._time = 0.0
        self._host = HostProcesses()

    def read(self, gpu_pids: Iterable[int], urls: Mapping[str, str], now: float) -> HostProcesses:
        """Find the owners of *gpu_pids*; *now* is Unix seconds on the pipeline's clock."""
        chains = _chains(self._root, gpu_pids)
        seen = (chains, dict(urls))
        if seen != self._seen or now - self._time >= REREAD_SECONDS:
            self._seen, self._time = seen, now
            self._host = _host(self._root, chains, urls)
        return self._host


def read_host(root: Path, gpu_pids: Iterable[int], urls: Mapping[str, str]) -> HostProcesses:
    """Find the owners of *gpu_pids* among the targets, whose *urls* stand by name."""
    return _host(root, _chains(root, gpu_pids), urls)


def _chains(root: Path, pids: Iterable[int]) -> dict[int, Chain]:
    return {pid: tuple(ancestry(root, pid)) for pid in set(pids)}


def _host(root: Path, chains: Mapping[int, Chain], urls: Mapping[str, str]) -> HostProcesses:
    sockets = listening_inodes(root, urls)
    for space in _other_network_namespaces(root, chains):
        sockets |= listening_inodes(space, urls, own=False)
    held = {
        process.pid: socket_inodes(root, process.pid)
        for process in chain.from_iterable(chains.values())
    }
    owners = _owners(chains, held, sockets)
    every_pid = sees_every_pid(root)
    visible = every_pid or any(chains.values())
    serving = {target for target, inodes in sockets.items() if inodes}
    problem = _reason(visible, None in held.values(), bool(chains))
    lost = sorted(serving - {owner.target for owner in owners.values()})
    return HostProcesses(
        owners,
        _orphans({pid: up for pid, up in chains.items() if pid not in owners}, every_pid),
        # An engine that serves here while nobody is on any GPU: it runs on the CPU, or the driver
        # does not list processes (WSL, vGPU). An empty list proves nothing then.
        complete=any(chains.values()) or (visible and not serving),
        problems={} if problem is None else dict.fromkeys(lost, problem),
    )


def _other_network_namespaces(root: Path, chains: Mapping[int, Chain]) -> Iterator[Path]:
    """Yield a process of each network namespace but ours, such as that of each pod with a GPU."""
    known = {network_namespace(root / "self"), None}
    for process in chain.from_iterable(chains.values()):
        path = root / str(process.pid)
        if (space := network_namespace(path)) not in known:
            known.add(space)
            yield path


def _owners(
    chains: Mapping[int, Chain],
    held: Mapping[int, frozenset[int] | None],
    sockets: Mapping[str, list[int]],
) -> dict[int, Owner]:
    targets = {inode: target for target, inodes in sockets.items() for inode in inodes}
    found = {pid: _owner(up, held, targets) for pid, up in chains.items()}
    return {pid: owner for pid, owner in found.items() if owner is not None}


def _orphans(chains: Mapping[int, Chain], every_pid: bool) -> frozenset[int]:
    """Pids without a living server; one that is not in /proc is dead where /proc shows them all."""
    return frozenset(pid for pid, up in chains.items() if (_orphaned(up) if up else every_pid))


def _owner(
    up: Chain, held: Mapping[int, frozenset[int] | None], targets: Mapping[int, str]
) -> Owner | None:
    engine = None
    for process in up:
        if engine is None and (match := ENGINE.match(process.command)) is not None:
            engine = match[1]
        for inode in (held[process.pid] or frozenset()) & targets.keys():
            return Owner(targets[inode], engine)
    return None


def _orphaned(up: Chain) -> bool:
    """Whether the topmost engine process was handed to a process that only collects the dead."""
    ours = [place for place, p in enumerate(up) if ENGINE_OR_WORKER.match(p.command)]
    if not ours:
        return False
    if ours[-1] == len(up) - 1:
        return up[-1].parent <= 1  # process 1 may be hidden from us, and 0 has no entry
    parent = up[ours[-1] + 1]
    if REAPER.match(parent.command):
        return True
    return parent.pid == 1 and SERVING.search(parent.command) is None


def _reason(visible: bool, forbidden: bool, any_process: bool) -> Problem | None:
    otherwise = "or say which GPUs belong to the target with `gpu_uuids`"
    if not visible:
        return Problem(
            "gpu_pids_not_visible",
            "NVML shows no process of this pid namespace, so nobody can tell whose GPU is whose: "
            f"run the exporter with `hostPID: true` (`docker run --pid host`), {otherwise}",
        )
    if forbidden:
        return Problem(
            "process_tree_forbidden",
            "the open sockets of vLLM's processes may not be read: run the exporter as the same "
            f"user, or with CAP_SYS_PTRACE, {otherwise}",
        )
    if any_process:
        return Problem(
            "no_gpu_process_below",
            "the process that listens at the target's port has no descendant on a GPU (a proxy in "
            f"front of vLLM, Ray workers, or an engine without GPU): name the server itself, "
            f"{otherwise}",
        )
    return None
