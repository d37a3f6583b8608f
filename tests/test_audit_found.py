"""Audits on this host are found by their sockets, and one that hangs harms nobody."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kvcache_exporter.audits import local
from kvcache_exporter.audits.answers import (
    blocks_by_owner,
)
from kvcache_exporter.hosts.gpu_watch import HostGpus
from kvcache_exporter.model import Audit, Target

ENGINE = """
import os, socket, sys, time
sys.path.insert(0, sys.argv[1])
from kvcache_exporter.vllm_plugin.auditor import Auditor
from kvcache_exporter.vllm_plugin.server import serve
from vllm_shapes import Scheduler, Status
api = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:  # the engine core is a child of the API server
    scheduler = Scheduler("0.32.0")
    scheduler.give("a", Status.RUNNING, 10)
    auditor = Auditor(scheduler)
    scheduler.pool.take(3)
    auditor.step()
    while "owners" not in auditor.report():  # another thread counts
        time.sleep(0.01)
    serve(auditor.report, 0)
    print(api.getsockname()[1], os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
"""


@contextmanager
def engine_process() -> Iterator[tuple[int, int]]:
    """A process tree like vLLM's with an audit in it: port of the API server, pid of the engine."""
    command = [sys.executable, "-c", ENGINE, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port, pid = map(int, process.stdout.readline().split())
        yield port, pid
        os.kill(pid, 9)
        process.kill()


def host_audits(target: Target) -> tuple[Audit, ...]:
    return asyncio.run(HostGpus(()).read([target], 1000.0)).audits_of(target.name)


def test_an_audit_on_this_host_is_found_and_belongs_to_the_server_above_it() -> None:
    with engine_process() as (port, pid):
        [found] = host_audits(Target("t", f"http://127.0.0.1:{port}/metrics"))
        assert host_audits(Target("t", "http://127.0.0.1:1/metrics")) == ()

    assert (found.pid, found.engine, found.supported) == (pid, "0", True)
    assert dict(found.owners)["running"] == 10
    assert found.orphaned_blocks == 3
    assert sum(count for _, count in blocks_by_owner(found)) == found.pool_blocks == 100


@contextmanager
def listening(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0kvcache-audit/{name}")
        listener.listen()
        yield listener


def test_an_audit_that_hangs_is_told_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "TIMEOUT_SECONDS", 0.05)
    with listening("999999999/7"):
        [told] = [one for one in local.read_audits() if one.engine == "7"]

    assert not told.supported
    assert "is the engine hung?" in (told.reason or "")


def test_audits_that_hang_wait_together_and_starve_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "TIMEOUT_SECONDS", 0.5)
    with ExitStack() as stack:
        for rank in range(20):  # all of them are asked before the one that answers
            stack.enter_context(listening(f"0/{rank}"))
        _, engine = stack.enter_context(engine_process())
        told = local.read_audits()

    assert len([one for one in told if one.pid == os.getpid() and not one.supported]) == 20
    assert [one.orphaned_blocks for one in told if one.pid == engine] == [3]


def test_who_listens_is_the_kernels_word_not_the_sockets_name() -> None:
    """A name is free for all to take: what counts is the process that took it."""
    with listening("1/8") as listener:

        def hang_up() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        [told] = [one for one in local.read_audits() if one.engine == "8"]
        thread.join()

    assert told.pid == os.getpid()
