"""The exporter's side of the audit: found on this host or at a port, believed, bounded, exposed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube_server import pod
from test_pipeline import BUSY, Exporter, Fleet
from vllm_shapes import Scheduler, Status

from benchmarks.audit.measure import HEADER, POOLS, measure, table
from kvcache_exporter.audits import local
from kvcache_exporter.audits.answers import (
    audit_targets,
    blocks_by_owner,
    fetched,
    mute,
    of_engine,
    parse,
    silent,
)
from kvcache_exporter.config import Config, TargetConfig
from kvcache_exporter.discovery import _groups
from kvcache_exporter.discovery._pods import read_pod, targets
from kvcache_exporter.doctor import Level
from kvcache_exporter.doctor.audit import _answer
from kvcache_exporter.explain import _owners
from kvcache_exporter.hosts.gpu_watch import HostGpus
from kvcache_exporter.model import Audit, EngineStatus, Problem, Scrape, Snapshot, Target
from kvcache_exporter.presets import PRESETS
from kvcache_exporter.serve import pages
from kvcache_exporter.vllm_plugin.auditor import COST_SHARE, Auditor

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


def report(**changes: Any) -> dict[str, Any]:
    scheduler = Scheduler("0.32.0")
    scheduler.give("a", Status.RUNNING, 10)
    return Auditor(scheduler).report() | changes


def test_what_the_plugin_tells_is_what_is_read() -> None:
    told = report(
        time=5.0, free_blocks=90, orphaned_blocks=0, owners={"running": 10}, cached_blocks=4
    )
    read = parse(json.dumps(told).encode())

    assert read is not None
    assert (read.pid, read.supported, read.time) == (os.getpid(), True, 5.0)
    assert blocks_by_owner(read) == (
        ("orphaned", 0), ("running", 10), ("cached", 4), ("free", 86),
    )  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=40), inner),
)


@given(st.dictionaries(st.sampled_from(sorted(report())), JSON))
def test_any_answer_is_read_within_bounds_or_not_at_all(changes: dict[str, Any]) -> None:
    read = parse(json.dumps(report(**changes)).encode())
    if read is not None:
        assert len(read.engine) <= 16
        assert len(read.reason or "") <= 300
        for name, count in (*read.owners, *read.requests, *read.orphaned_after):
            assert 0 < len(name) <= 32
            assert count >= 0


@given(st.binary(max_size=200))
def test_what_is_no_audit_is_none(body: bytes) -> None:
    assert parse(body) is None


def test_each_engines_audit_listens_at_the_port_plus_its_rank() -> None:
    target = Target("t", "http://[::1]:8000/metrics", auth="x", audit_url="http://[::1]:9400")
    asked = audit_targets(target, ["0", "3", "odd"])

    assert {rank: one.url for rank, one in asked.items()} == {
        "0": "http://[::1]:9400",
        "3": "http://[::1]:9403",
    }
    assert all(one.auth is None for one in asked.values()), "they get no credentials"
    assert audit_targets(replace(target, audit_url="http://a:65535"), ["1"]) == {}


@pytest.mark.parametrize(
    ("scrape", "reason"),
    [
        (Scrape("t", 0.0, 0.1, None, Problem("refused", "nothing listens: start it")), "listens"),
        (Scrape("t", 0.0, 0.1, b"<html>"), "is the port right?"),
    ],
)
def test_an_audit_that_cannot_be_read_becomes_a_problem_that_says_what_to_do(
    scrape: Scrape, reason: str
) -> None:
    [problem] = mute([fetched("0", scrape)])
    assert problem.code == "audit_silent"
    assert reason in problem.text


def test_an_engine_that_the_audit_does_not_know_is_told_apart_from_one_that_is_silent() -> None:
    told = parse(json.dumps(report(supported=False, reason="vLLM has changed inside")).encode())
    assert told is not None
    [problem] = mute([told])
    assert problem.code == "audit_unsupported"
    assert "vLLM has changed inside" in problem.text


def test_an_audit_that_counts_is_preferred_to_one_that_does_not() -> None:
    counting = Audit(1, "0", supported=True)
    assert of_engine([silent("0", "?"), counting], "0", 2) is counting
    assert of_engine([counting], "1", 2) is None
    assert of_engine([Audit(1, "5", supported=True)], "0", 1) is not None


def test_a_pod_that_declares_the_port_is_asked_there() -> None:
    ports = [("http", 8000), ("kvcache-audit", 9400)]
    read = [read_pod(pod("a", "10.0.0.7", ports=ports)), read_pod(pod("b", "10.0.0.8"))]
    found = targets([one for one in read if one], PRESETS.values(), (), None)

    assert [one.audit_url for one in found] == ["http://10.0.0.7:9400", None]


@pytest.mark.parametrize(
    ("address", "port", "url"),
    [
        ("10.0.0.5:8000", "9155", "http://10.0.0.5:9155"),
        ("[fd00::1]:8000", "9155", "http://[fd00::1]:9155"),
        ("10.0.0.5:8000", "99999", None),
        ("10.0.0.5:8000", "", None),
    ],
)
def test_a_list_of_targets_may_name_the_port_on_their_hosts(
    address: str, port: str, url: str | None
) -> None:
    group = [{"targets": [address], "labels": {"__kvcache_audit_port__": port}}]
    [target] = _groups.parse(json.dumps(group), "list.json")
    assert target.audit_url == url


class Audited(Fleet):
    """Servers whose audits listen on TCP."""

    async def fetch_audit(self, target: Target) -> Scrape:
        self.asked.append(target.url)
        return Scrape(target.name, self.now, 0.1, self.told)

    told = b""

    def world(self) -> Any:
        return replace(super().world(), fetch_audit=self.fetch_audit)


def audited(told: bytes) -> tuple[Snapshot, list[str]]:
    fleet = Audited({"good:1": BUSY})
    fleet.told = told
    config = Config(targets=(TargetConfig("http://good:1", audit_url="http://good:9400"),))
    exporter = Exporter(fleet, config)
    exporter.cycle()
    return exporter.cycle(), fleet.asked


def only(snapshot: Snapshot) -> EngineStatus:
    [engine] = snapshot.engines
    return engine


def test_an_audit_at_a_port_reaches_the_page() -> None:
    told = report(time=5.0, free_blocks=90, orphaned_blocks=2, owners={"running": 8})
    snapshot, asked = audited(json.dumps(told).encode())
    page = pages(snapshot)["/metrics"].body.decode()

    assert "http://good:9400" in asked
    assert 'kvcache_audit_up{target="good:1",engine="0"} 1.0' in page
    assert 'kvcache_audit_blocks{target="good:1",engine="0",owner="orphaned"} 2' in page
    assert only(snapshot).audit is not None


def test_explain_stacks_the_owners() -> None:
    counted = Audit(
        7, "0", True, pool_blocks=100, free_blocks=50, cached_blocks=20, orphaned_blocks=5,
        owners=(("running", 45), ("ghost", 0)), orphaned_after=(("abort", 5),),
    )  # fmt: skip
    assert list(_owners(counted)) == [
        "  Inside the engine (process 7)",
        "    orphaned                    5    5.0%  ##",
        "    running                    45   45.0%  ##################",
        "    cached                     20   20.0%  ########",
        "    free                       30   30.0%  ############",
        "    5 orphaned after abort",
    ]
    broken = replace(counted, double_booked_blocks=3)
    assert "    ! 3 blocks are free and somebody's at once" in _owners(broken)
    assert "changed inside" in " ".join(_owners(silent("0", "vLLM has changed inside")))
    assert list(_owners(None)) == []


@pytest.mark.parametrize(
    ("counted", "level"),
    [
        (Audit(7, "0", True, pool_blocks=9, settled_orphaned_blocks=0), Level.FINE),
        (Audit(7, "0", True, pool_blocks=9, settled_orphaned_blocks=2), Level.PROBLEM),
        (Audit(7, "0", True, settled_orphaned_blocks=0, settled_ghost_blocks=1), Level.PROBLEM),
        (Audit(7, "0", True, orphaned_blocks=2), Level.UNKNOWN),
        (Audit(7, "0", True, pool_blocks=9, double_booked_blocks=1), Level.PROBLEM),
        (silent("0", "vLLM has changed inside"), Level.WARNING),
    ],
)
def test_the_doctor_says_what_is_lost(counted: Audit, level: Level) -> None:
    assert _answer("audit", counted).level is level


def test_an_audit_that_fails_harms_nothing_but_itself() -> None:
    snapshot, _ = audited(b"gibberish")
    page = pages(snapshot)["/metrics"].body.decode()

    assert 'kvcache_audit_up{target="good:1",engine="0"} 0.0' in page
    assert 'kvcache_used_blocks{target="good:1",engine="0"} 7' in page
    assert {p.code for p in snapshot.targets[0].problems} == {"audit_silent"}


def test_the_documented_costs_are_those_of_the_benchmark() -> None:
    """Another machine gives other numbers: the rows and columns are held, not the values."""
    document = (Path(__file__).parents[1] / "docs" / "audit.md").read_text(encoding="utf-8")
    part = document.partition("benchmarks.audit -->\n\n")[2].partition("\n\n")[0]
    head, _, *rows = (line.strip("| ").split(" | ") for line in part.strip().splitlines())

    assert tuple(head) == HEADER
    assert [row[0] for row in rows] == [f"{blocks:,}" for blocks in POOLS]
    assert all(float(row[4].rstrip("%")) / 100 <= COST_SHARE + 1e-5 for row in rows)


def test_the_benchmark_measures_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    # An audit on a socket of this very process would be found by later tests.
    monkeypatch.setenv("KVCACHE_AUDIT_LISTEN", "127.0.0.1:0")
    printed = table([measure(blocks, rounds=1, steps=10) for blocks in (0, 5_000)])
    assert [len(line.split(" | ")) for line in printed.splitlines()] == [len(HEADER)] * 4
