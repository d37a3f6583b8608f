"""Processes on GPUs that allocate, free, fork, die, and stand in for vLLM's process tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.gpu_proof.eyes import PORT, Eyes, Proof, picture, until
from kvcache_exporter.hosts.gpu_view import engine_bytes, gpu_pids, unowned_bytes
from kvcache_exporter.hosts.merge import assign
from kvcache_exporter.hosts.procfs import ancestry
from kvcache_exporter.model import GpuReading, Target

GIB = 1 << 30
ALLOCATED = 4 * GIB

WORKER = """
import os, sys, torch
device = torch.device("cuda", int(sys.argv[1]))
torch.zeros(1, device=device)
print("ready", os.getpid(), flush=True)
held = None
for line in sys.stdin:
    if line == "allocate\\n":
        held = torch.empty(4 << 30, dtype=torch.uint8, device=device)
    elif line == "free\\n":
        held = None
        torch.cuda.empty_cache()
    elif line == "fork\\n":
        child = os.fork()
        if child == 0:
            import time
            time.sleep(120)
            os._exit(0)
        print("child", child, flush=True)
    torch.cuda.synchronize(device)
    print("done", flush=True)
"""

API = """
import socket, subprocess, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
for command in sys.argv[2:]:
    title, _, script = command.partition("|")
    subprocess.Popen([title, "-c", script], executable="/bin/bash", start_new_session=False)
time.sleep(120)
"""


@contextmanager
def worker(script: Path, gpu: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(script), str(gpu)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str], word: str) -> list[str]:
    """Send a word to a worker and return what it answers until it is done."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()
    answers = []
    while (line := process.stdout.readline().strip()) not in ("done", ""):
        answers.append(line)
    return answers


def life_of_a_process(eyes: Eyes, proof: Proof, script: Path) -> None:
    """Allocate, free, fork, die by SIGKILL; what NVML says after each."""
    uuid = eyes.look().gpus[0].uuid
    before = eyes.gpu(uuid)
    steps: dict[str, Any] = {"before": picture(before)}
    with worker(script, 0) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline().split()[1])
        steps["context"] = picture(eyes.gpu(uuid))
        tell(process, "allocate")
        held = eyes.gpu(uuid)
        steps["allocated_4_gib"] = picture(held)
        proof.expect("an allocation shows in used", grew(before, held) >= ALLOCATED)
        proof.expect("its process is listed with its bytes", bytes_of(held, pid) >= ALLOCATED)
        tell(process, "free")
        freed = eyes.gpu(uuid)
        steps["freed"] = picture(freed)
        proof.expect("a free shows in used", grew(before, freed) < ALLOCATED)
        tell(process, "allocate")
        child = int(tell(process, "fork")[0].split()[1])
        steps["forked"] = picture(eyes.gpu(uuid)) | {"parent": pid, "child": child}
        process.kill()
        process.wait()
        time.sleep(2.0)
        orphan = eyes.gpu(uuid)
        steps["parent_killed_child_lives"] = picture(orphan)
        nobodys = unowned_bytes(orphan, eyes.host()[1])
        steps["unowned_while_child_lives"] = nobodys
        proof.expect("memory that a forked child keeps is nobody's", (nobodys or 0) >= ALLOCATED)
        os.kill(child, signal.SIGKILL)
    gone = until(lambda: grew(before, eyes.gpu(uuid)) < GIB)
    steps["seconds_until_released"] = gone
    steps["after"] = picture(eyes.gpu(uuid))
    proof.expect("memory of a killed process comes back", gone is not None)
    proof.seen["life_of_a_process"] = steps


def grew(before: GpuReading, after: GpuReading) -> int:
    return (after.used_bytes or 0) - (before.used_bytes or 0)


def bytes_of(gpu: GpuReading, pid: int) -> int:
    return sum(p.used_bytes or 0 for p in gpu.processes or () if p.pid == pid)


def engines_on_gpus(eyes: Eyes, proof: Proof, script: Path, trees: dict[str, list[int]]) -> None:
    """Start a stand-in for vLLM with one engine an entry of *trees*, its workers on those GPUs."""
    name = " + ".join(f"{title} on {gpus}" for title, gpus in trees.items())
    commands = [
        f"{title}|" + " ".join(_worker_line(script, gpu) for gpu in gpus) + " wait"
        for title, gpus in trees.items()
    ]
    server = subprocess.Popen([sys.executable, "-c", API, str(PORT), *commands])
    workers = sum(len(gpus) for gpus in trees.values())
    seen: dict[str, Any] = {"seconds_until_ready": until(lambda: _allocated(eyes) >= workers)}
    pids = gpu_pids(eyes.look().gpus)
    try:
        seen |= _while_it_serves(eyes, proof, name, list(trees.values()))
        server.kill()
        server.wait()
        time.sleep(1.0)
        seen |= _after_it_was_killed(eyes, proof, name, set().union(*trees.values()))
    finally:
        proof.seen[name] = seen
        server.kill()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        until(lambda: _allocated(eyes) == 0)


def _while_it_serves(
    eyes: Eyes, proof: Proof, name: str, expected: list[list[int]]
) -> dict[str, Any]:
    gpus, host = eyes.host()
    engines = [str(number) for number in range(len(expected))]
    found = assign(Target("proof", f"http://127.0.0.1:{PORT}"), engines, gpus, host)
    mapping = {engine: [gpu.index for gpu in its] for engine, its in found.gpus.items()}
    right = mapping == dict(zip(engines, expected, strict=True))
    proof.expect(f"{name}: each engine has its own GPUs", right)
    held = {g.uuid: {str(o): size for o, size in engine_bytes(g, host).items()} for g in gpus}
    return {"mapping": mapping, "engine_bytes": held}


def _after_it_was_killed(eyes: Eyes, proof: Proof, name: str, held: set[int]) -> dict[str, Any]:
    gpus, host = eyes.host()
    unowned = {gpu.index: unowned_bytes(gpu, host) for gpu in gpus}
    found = {index for index, size in unowned.items() if (size or 0) >= ALLOCATED}
    proof.expect(f"{name}: after SIGKILL of the server nobody owns it", found == held)
    pids = sorted(gpu_pids(gpus))
    chains = {pid: [each.command[:60] for each in ancestry(Path("/proc"), pid)] for pid in pids}
    return {"unowned_after_sigkill": unowned, "chains_after_sigkill": chains}


def _worker_line(script: Path, gpu: int) -> str:
    return f"{sys.executable} {script} {gpu} < <(echo allocate; sleep 120) > /dev/null &"


def _allocated(eyes: Eyes) -> int:
    gpus = eyes.look().gpus
    sizes = [process.used_bytes or 0 for gpu in gpus for process in gpu.processes or ()]
    return sum(size >= ALLOCATED for size in sizes)
