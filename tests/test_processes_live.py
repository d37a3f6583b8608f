"""The process tree of this machine itself: real sockets, real parents, a real SIGKILL."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvcache_exporter.processes import Owner, read_host
from kvcache_exporter.procfs import ancestry

SERVER = """
import socket, subprocess, sys, time
server = socket.create_server(("127.0.0.1", 0))
workers = [
    subprocess.Popen([f"VLLM::EngineCore_DP{n}", "-c", "sleep 600 & echo $!; wait"],
                     executable="/bin/bash", stdout=subprocess.PIPE, text=True)
    for n in range(2)
]
pids = [worker.stdout.readline().strip() for worker in workers]
print(server.getsockname()[1], *pids, flush=True)
time.sleep(600)
"""


@pytest.fixture
def server():
    """A server with two engines of one worker each: (process, port, worker pids)."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    ) as process:
        port, *workers = map(int, process.stdout.readline().split())
        yield process, port, workers
        engines = [next(iter(list(ancestry(Path("/proc"), pid))[1:])).pid for pid in workers]
        for pid in (*workers, *engines):
            subprocess.run(["kill", "-KILL", str(pid)], check=False)
        process.kill()


def test_workers_are_traced_to_the_socket_of_their_server(server):
    _, port, (first, second) = server
    host = read_host(Path("/proc"), [first, second], {"t": f"http://localhost:{port}/metrics"})
    assert host.owners == {first: Owner("t", "0"), second: Owner("t", "1")}
    assert host.problems == {}


def test_workers_are_orphans_once_their_server_was_killed(server):
    process, port, workers = server
    process.send_signal(signal.SIGKILL)
    process.wait()
    host = read_host(Path("/proc"), workers, {"t": f"http://localhost:{port}/metrics"})
    if host.orphans != set(workers):
        parents = [list(ancestry(Path("/proc"), pid))[2] for pid in workers]
        pytest.skip(f"orphans go to a process of this machine's own: {parents}")
    assert (host.owners, host.problems) == ({}, {})
