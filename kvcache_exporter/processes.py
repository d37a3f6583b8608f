"""Which engine of which target a process on a GPU belongs to, read from this host's process tree.

vLLM names its processes: the API server listens, ``VLLM::EngineCore`` or ``VLLM::EngineCore_DPk``
is its child, ``VLLM::Worker...`` is a child of that; NVML names the worker, or the engine core
itself where it has no worker. So the way goes up from the few processes on a GPU and costs nothing
on a host with thousands of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from kvcache_exporter.model import Problem
from kvcache_exporter.procfs import (
    Address,
    Listener,
    Process,
    ancestry,
    host_name,
    listeners,
    own_addresses,
    sees_every_pid,
    socket_inodes,
)

ENGINE = re.compile(r"\S*::EngineCore(?:_DP(\d+))?")
ENGINE_OR_WORKER = re.compile(r"\S*::(?:EngineCor|Worker)")
SERVING = re.compile(r"vllm|python|(?:^|/)ray", re.IGNORECASE)
"""A parent that may well be an API server, even if it is process 1 of a container."""
REAPER = re.compile(
    r"(?:\S*/)?(?:systemd|init|tini|dumb-init|catatonit|conmon|containerd-shim\S*)(?:\s|$)"
)


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
    """vLLM processes whose API server is gone."""
    complete: bool = False
    """Whether "no process" in NVML's lists means nobody; in a pid namespace they are empty."""
    problems: Mapping[str, Problem] = field(default_factory=dict)
    """By target on this host: why it owns no process on a GPU."""


def read_host(root: Path, gpu_pids: Iterable[int], urls: Mapping[str, str]) -> HostProcesses:
    """Find the owners of *gpu_pids* among the targets, whose *urls* stand by name."""
    chains = {pid: list(ancestry(root, pid)) for pid in set(gpu_pids)}
    visible = sees_every_pid(root) or any(chains.values())
    sockets = _target_sockets(root, urls)
    targets = {inode: target for target, inodes in sockets.items() for inode in inodes}
    held = {
        process.pid: socket_inodes(root, process.pid)
        for chain in chains.values()
        for process in chain
    }
    owners = {
        pid: owner
        for pid, chain in chains.items()
        if (owner := _owner(chain, held, targets)) is not None
    }
    orphans = {pid for pid, chain in chains.items() if pid not in owners and _orphaned(chain)}
    serving = {target for target, inodes in sockets.items() if inodes}
    lost = serving - {owner.target for owner in owners.values()}
    problem = _reason(visible, None in held.values(), bool(chains))
    problems = {} if problem is None else dict.fromkeys(sorted(lost), problem)
    # An engine that serves here while nobody is on any GPU: it runs on the CPU, or the driver does
    # not list processes (WSL, vGPU). An empty list proves nothing then.
    complete = any(chains.values()) or (visible and not serving)
    return HostProcesses(owners, frozenset(orphans), complete, problems)


def _owner(
    chain: list[Process], held: Mapping[int, frozenset[int] | None], targets: Mapping[int, str]
) -> Owner | None:
    engine = None
    for process in chain:
        if engine is None and (match := ENGINE.match(process.command)) is not None:
            engine = match[1]
        for inode in (held[process.pid] or frozenset()) & targets.keys():
            return Owner(targets[inode], engine)
    return None


def _orphaned(chain: list[Process]) -> bool:
    """Whether the topmost engine process was handed to a process that only collects the dead."""
    ours = [place for place, p in enumerate(chain) if ENGINE_OR_WORKER.match(p.command)]
    if not ours:
        return False
    if ours[-1] == len(chain) - 1:
        return chain[-1].parent <= 1  # process 1 may be hidden from us, and 0 has no entry
    parent = chain[ours[-1] + 1]
    if REAPER.match(parent.command):
        return True
    return parent.pid == 1 and SERVING.search(parent.command) is None


def _target_sockets(root: Path, urls: Mapping[str, str]) -> dict[str, list[int]]:
    """Inodes that listen where each target's URL points; only targets on this host are in it."""
    listening, own, name = listeners(root), own_addresses(root), host_name(root)
    found = {}
    for target, url in urls.items():
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        on_port = [listener for listener in listening if listener.port == port]
        host = parts.hostname or ""
        if host in ("localhost", name):
            found[target] = [listener.inode for listener in on_port]
        elif _is_own(host, own):
            found[target] = _answering(host, on_port)
    return found


def _is_own(host: str, own: set[Address]) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified or address in own


def _answering(host: str, on_port: list[Listener]) -> list[int]:
    """Prefer, like the kernel, a socket bound to the address over one bound to all of them."""
    address = ip_address(host)
    exact = [listener.inode for listener in on_port if listener.address == address]
    return exact or [each.inode for each in on_port if each.address.is_unspecified]


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
