"""The audit plugin inside a real vLLM: its count equals the injected truth, busy and never idle."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from evidence import is_below
from healthy_hour import hour
from load import Load, complete, words
from server import Server, free_port, start, stop
from throughput import turns
from throughput_report import compared

from kvcache_exporter.audits.local import read_audits
from kvcache_exporter.hosts.gpu_watch import HostGpus
from kvcache_exporter.model import Audit, Target

SMALL_POOL = ("--num-gpu-blocks-override", "160")
"""Less than what the requests of `busy` want, so that some of them are preempted."""


@dataclass(frozen=True)
class Case:
    """One way to lose blocks, and the load that makes it happen."""

    chances: dict[str, float]
    options: tuple[str, ...] = ()
    max_tokens: int = 60
    abort_share: float = 0.0


CASES = {
    "abort": Case({"abort": 1.0}, abort_share=0.5),
    "finish": Case({"finish": 0.2}),
    "preemption": Case({"preemption": 1.0, "most": 20}, SMALL_POOL, max_tokens=700),
}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    servers: list[Server] = []

    def begin(*options: str, **environment: str) -> Server:
        folder = tmp_path / str(len(servers))
        folder.mkdir()
        servers.append(start(folder, *options, **environment))
        return servers[-1]

    yield begin
    for one in servers:
        stop(one)


def audit(server: Server) -> Audit:
    """What the server's audit says, which is there from the engine's first step on."""
    for _ in range(100):
        mine = [one for one in read_audits() if is_below(one.pid, server.process.pid)]
        if mine and "does not answer" not in (mine[0].reason or ""):  # a busy machine is patient
            return mine[0]
        time.sleep(0.3)
    raise AssertionError("no audit answers")


def busy(server: Server, case: Case) -> list[threading.Thread]:
    """Long requests keep the engine busy throughout; others lose their blocks meanwhile."""
    long = [
        threading.Thread(target=complete, args=(server.port, words(i, 30), 1900)) for i in range(2)
    ]
    load = Load(server.port, 60, 6, case.abort_share, case.max_tokens)
    threads = [*long, threading.Thread(target=load.run)]
    for one in threads:
        one.start()
    return threads


def samples_while(threads: list[threading.Thread], server: Server) -> list[Audit]:
    """What the audit said as long as any of the threads went on, each sample once."""
    seen: dict[float, Audit] = {}
    while any(one.is_alive() for one in threads):
        told = audit(server)
        assert told.supported, told.reason
        if told.time is not None:
            seen[told.time] = told
        time.sleep(0.4)
    return list(seen.values())


@pytest.mark.parametrize("kind", CASES)
def test_a_busy_engines_orphans_are_counted_to_the_block(started: Any, kind: str) -> None:
    case = CASES[kind]
    server = started(*case.options)
    server.leak(**case.chances)
    seen = samples_while(busy(server, case), server)
    truths = [(0.0, 0), *((one["time"], one["orphaned"]) for one in server.truths())]

    assert len(seen) > 5
    assert truths[-1][1] > 0
    for told in seen:
        assert told.time is not None
        assert told.orphaned_blocks == max(one for one in truths if one[0] <= told.time)[1]
        owned = sum(count for _, count in told.owners)
        assert owned + (told.free_blocks or 0) + told.orphaned_blocks == told.pool_blocks
    busy_samples = [told for told in seen if dict(told.requests).get("running")]
    assert max(told.orphaned_blocks or 0 for told in busy_samples) > 0
    time.sleep(1.5)
    assert audit(server).orphaned_blocks == truths[-1][1]
    assert set(dict(audit(server).orphaned_after)) & {EVENT_OF[kind], "several"}


EVENT_OF = {"abort": "abort", "finish": "request", "preemption": "preemption"}


def test_a_leak_of_an_engine_that_is_never_idle_is_called_within_a_minute(
    started: Any, tmp_path: Path
) -> None:
    server, port = started(), free_port()
    command = [sys.executable, "-m", "kvcache_exporter", "run", "--vllm-url", server.url]
    command += ["--listen-address", f"127.0.0.1:{port}", "--interval", "3"]
    with (
        kept_busy(server),
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stderr=log) as exporter,
    ):
        try:
            wait_for(port, r"kvcache_audit_settled_orphaned_blocks\{.*\} 0")
            server.leak(abort=1.0)
            Load(server.port, 20, 6, abort_share=0.5, max_tokens=60).run()
            lost = wait_for(port, r"kvcache_audit_blocks\{.*orphaned.*\} [1-9]")
            called = wait_for(port, r"kvcache_leak_active\{.*\} 1")
            assert "kvcache_idle_floor_blocks" not in page(port), "it was seen idle"
        finally:
            exporter.terminate()
    assert called - lost < 60


@contextmanager
def kept_busy(server: Server) -> Iterator[None]:
    """Long requests one after the other, two at a time that do not end together."""
    stop = threading.Event()

    def client(seed: int) -> None:
        complete(server.port, words(seed, 30), 300 + 800 * seed)
        while not stop.is_set():
            complete(server.port, words(seed, 30), 1900)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(2)]
    for one in threads:
        one.start()
    time.sleep(2)
    try:
        yield
    finally:
        stop.set()
        for one in threads:
            one.join()


def page(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def wait_for(port: int, pattern: str) -> float:
    """When the exporter's page showed it."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with suppress(OSError):
            if re.search(f"^{pattern}", page(port), re.MULTILINE):
                return time.monotonic()
        time.sleep(0.3)
    raise AssertionError(f"the page never showed {pattern}")


def test_each_engine_of_a_server_is_counted_under_its_own_name(started: Any) -> None:
    server = started("--data-parallel-size", "2")
    Load(server.port, 16, 8).run()
    target = Target("t", f"{server.url}/metrics")
    told = asyncio.run(HostGpus(()).read([target], time.time())).audits_of("t")

    assert sorted(one.engine for one in told) == ["0", "1"]
    assert all(one.supported for one in told)


def test_a_healthy_busy_engine_has_no_orphans(tmp_path: Path) -> None:
    """With aborts and preemptions; ``healthy_hour.py`` is the same for an hour."""
    assert hour(60.0, tmp_path)["wrong"] == []


def test_an_hour_with_a_leak_is_found_not_to_be_healthy(tmp_path: Path) -> None:
    wrong = hour(40.0, tmp_path, finish=0.5)["wrong"]
    assert wrong == ["samples_with_orphaned_blocks", "samples_with_settled_blocks"]


def test_throughput_with_and_without_it_is_the_same_within_noise(tmp_path: Path) -> None:
    """It fails where it is more than 5 % slower for certain; ``throughput.py`` tells how much."""
    pairs = [{name: 1.0 / wall for name, (wall, _) in pair.items()} for pair in turns(tmp_path, 9)]
    told = compared(pairs)
    sys.stderr.write(f"throughput with / without the audit, nine pairs: {told}\n")
    assert told["interval"][1] > 0.95
