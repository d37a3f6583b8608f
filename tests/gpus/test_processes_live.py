"""The process tree of this machine itself: real sockets, real parents, a real SIGKILL."""

import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvcache_exporter.hosts.processes import Owner, read_host
from kvcache_exporter.hosts.procfs import ancestry

SERVER = """
import socket, subprocess, sys, time
server = socket.create_server((sys.argv[1], 0))
workers = [
    subprocess.Popen([f"VLLM::EngineCore_DP{n}", "-c", "sleep 600 & echo $!; wait"],
                     executable="/bin/bash", stdout=subprocess.PIPE, text=True)
    for n in range(2)
]
pids = [worker.stdout.readline().strip() for worker in workers]
print(server.getsockname()[1], *pids, flush=True)
time.sleep(600)
"""


POD = "ip link set lo up && ip addr add 10.77.0.2/32 dev lo && exec "


@contextmanager
def serving(*command):
    """A server with two engines of one worker each: (process, port, worker pids)."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port, *workers = map(int, process.stdout.readline().split())
        yield process, port, workers
        engines = [next(iter(list(ancestry(Path("/proc"), pid))[1:])).pid for pid in workers]
        for pid in (*workers, *engines):
            subprocess.run(["kill", "-KILL", str(pid)], check=False)
        process.kill()


@pytest.fixture
def server():
    with serving(sys.executable, "-c", SERVER, "127.0.0.1") as started:
        yield started


@pytest.fixture
def server_in_a_pod():
    able = subprocess.run(["unshare", "-n", "sh", "-c", f"{POD} true"], capture_output=True)
    if able.returncode:
        pytest.skip("no network namespaces for us here")
    inside = f"{POD} {shlex.join([sys.executable, '-c', SERVER, '0.0.0.0'])}"
    with serving("unshare", "-n", "sh", "-c", inside) as started:
        yield started


def test_workers_in_a_network_namespace_are_traced_by_its_address(server_in_a_pod):
    _, port, (first, second) = server_in_a_pod
    urls = {"t": f"http://10.77.0.2:{port}/metrics", "u": f"http://127.0.0.1:{port}/metrics"}
    host = read_host(Path("/proc"), [first, second], urls)
    assert host.owners == {first: Owner("t", "0"), second: Owner("t", "1")}


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
