"""The audit inside vLLM: every block has an owner or is counted as nobody's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_shapes import RELEASES, Block, Pool, Scheduler, Status

from kvcache_exporter.vllm_plugin import auditor as auditing
from kvcache_exporter.vllm_plugin import walk
from kvcache_exporter.vllm_plugin.auditor import Auditor
from kvcache_exporter.vllm_plugin.hooks import Audits
from kvcache_exporter.vllm_plugin.server import NAME, serve
from kvcache_exporter.vllm_plugin.walk import UnsupportedError, count, snapshot


def counted(scheduler: Scheduler, baseline: int = 0) -> Any:
    return count(snapshot(scheduler, 100.0), baseline)


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_counts_owners_and_orphans(release: str) -> None:
    scheduler = Scheduler(release)
    scheduler.give("a", Status.RUNNING, 10)
    scheduler.give("b", Status.WAITING_FOR_REMOTE_KVS, 5)
    scheduler.give("c", Status.FINISHED_STOPPED, 4)
    scheduler.give("d", None, 3)
    scheduler.pool.take(2)  # referenced, and in nobody's table
    counts = counted(scheduler)

    assert counts.owners["running"] == 10
    assert counts.owners["remote_load"] == 5
    assert counts.owners["finished_delayed"] == 4
    assert counts.owners["ghost"] == 3
    assert counts.orphaned == 2
    assert (counts.pool_blocks, counts.free_blocks) == (100, 76)


def test_a_shared_block_is_counted_once_for_who_runs() -> None:
    scheduler = Scheduler("0.32.0")
    shared = scheduler.give("a", Status.RUNNING, 6)
    scheduler.give("b", Status.WAITING, 2)
    scheduler.tables[0]["b"] += shared
    counts = counted(scheduler)

    assert (counts.owners["running"], counts.owners["waiting"], counts.orphaned) == (6, 2, 0)


def test_the_null_block_belongs_to_nobody_and_is_no_orphan() -> None:
    scheduler = Scheduler("0.32.0")
    scheduler.give("a", Status.RUNNING, 3)
    scheduler.tables[0]["a"] += [scheduler.pool.null_block] * 5
    assert counted(scheduler).owners["running"] == 3


def test_a_block_that_is_free_and_in_a_table_at_once_is_told() -> None:
    scheduler = Scheduler("0.32.0")
    for block in scheduler.give("a", Status.RUNNING, 6)[:2]:
        block.ref_cnt = 0
    counts = counted(scheduler)
    assert (counts.double_booked, counts.orphaned) == (2, 0)


def test_blocks_of_several_groups_come_from_one_pool() -> None:
    scheduler = Scheduler("0.32.0", groups=3)
    for group in range(3):
        scheduler.give("a", Status.RUNNING, 4, group)
    assert counted(scheduler).owners["running"] == 12


def test_a_second_pool_has_block_ids_of_its_own() -> None:
    """As HiSparse has one on the host."""
    scheduler, second = Scheduler("0.32.0", groups=2), Pool(51)
    scheduler.kv_cache_manager.coordinator.single_type_managers[1].block_pool = second
    scheduler.give("a", Status.RUNNING, 10)
    scheduler.tables[1]["a"] = second.take(5)
    second.take(2)
    counts = counted(scheduler)

    assert (counts.pool_blocks, counts.free_blocks) == (150, 90 + 43)
    assert (counts.owners["running"], counts.orphaned) == (15, 2)


def test_counting_stops_for_breath_after_every_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """In between the engine's thread gets Python's lock."""
    monkeypatch.setattr(walk, "CHUNK_BLOCKS", 7)
    scheduler = Scheduler("0.32.0")
    scheduler.give("a", Status.RUNNING, 50)
    pauses: list[None] = []
    counts = count(snapshot(scheduler, 0.0), pause=lambda: pauses.append(None))

    assert counts.owners["running"] == 50
    assert len(pauses) == -(-50 // 7) + -(-101 // 7)


def test_free_blocks_that_still_hold_a_prefix_are_told_apart() -> None:
    scheduler = Scheduler("0.32.0")
    for block in scheduler.pool.blocks[1:31]:
        block.block_hash = "prefix"
    for block in scheduler.pool.blocks[1:11]:
        block.ref_cnt = 1
    assert counted(scheduler).cached_blocks == 20


def test_a_large_sample_makes_the_next_one_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "COST_SHARE", 0.002)
    monkeypatch.setattr(auditing, "COUNT_SHARE", 0.01)
    assert auditing.sample_interval(0.0001, 0.001) == auditing.SAMPLE_SECONDS
    assert auditing.sample_interval(0.010, 0.0) == pytest.approx(5.0)
    assert auditing.sample_interval(0.0, 0.3) == pytest.approx(30.0)


def test_parked_blocks_are_no_orphans() -> None:
    scheduler = Scheduler("0.24.0")
    scheduler.deferred_frees.append((7, scheduler.pool.take(4)))
    counts = counted(scheduler)
    assert (counts.owners["parked"], counts.orphaned) == (4, 0)


def test_blocks_that_were_gone_from_the_start_are_no_orphans() -> None:
    scheduler = Scheduler("0.17.1")
    scheduler.pool.unlisted = {1, 2, 3}
    auditor = Auditor(scheduler)
    auditor.step()
    eventually(lambda: "orphaned_blocks" in auditor.report())
    assert auditor.report()["orphaned_blocks"] == 0


def test_a_changed_inside_is_told_and_named() -> None:
    scheduler = Scheduler("0.32.0")
    scheduler.kv_cache_manager = SimpleNamespace()
    with pytest.raises(UnsupportedError, match="block_pool"):
        snapshot(scheduler, 0.0)
    auditor = Auditor(scheduler)
    auditor.step()

    assert auditor.report()["supported"] is False
    assert "block_pool" in auditor.report()["reason"]


@given(
    st.lists(st.tuples(st.sampled_from(list(Status)), st.integers(0, 9)), max_size=8),
    st.integers(0, 20),
    st.sampled_from(RELEASES),
)
def test_owners_and_orphans_and_free_always_make_the_pool(
    held: list[tuple[Status, int]], lost: int, release: str
) -> None:
    scheduler = Scheduler(release, 201)
    for number, (status, blocks) in enumerate(held):
        scheduler.give(str(number), status, blocks)
    scheduler.pool.take(lost)
    counts = counted(scheduler)

    assert counts.orphaned == lost
    assert sum(counts.owners.values()) == sum(blocks for _, blocks in held)
    assert counts.free_blocks + sum(counts.owners.values()) + lost == counts.pool_blocks


@pytest.fixture(autouse=True)
def cheap_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a sample may seem dear; only one test is about that."""
    monkeypatch.setattr(auditing, "COST_SHARE", 1e9)
    monkeypatch.setattr(auditing, "COUNT_SHARE", 1e9)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def step(auditor: Auditor, clock: Clock, seconds: float = 5.0) -> dict[str, Any]:
    """Let time pass, make a step and wait until its sample is counted."""
    samples = auditor.report()["samples"]
    clock.now += seconds
    auditor.step()
    eventually(lambda: auditor.report()["samples"] > samples)
    return auditor.report()


def test_orphans_count_once_they_have_settled_and_are_put_down_to_what_came_before() -> None:
    scheduler, clock = Scheduler("0.32.0"), Clock()
    scheduler.give("a", Status.RUNNING, 10)
    auditor = Auditor(scheduler, clock)
    assert step(auditor, clock)["settled_orphaned_blocks"] is None
    scheduler.pool.take(3)
    auditor.happened("abort")
    told = step(auditor, clock)

    assert told["orphaned_blocks"] == 3
    assert told["orphaned_after"] == {"abort": 3}
    step(auditor, clock)
    assert step(auditor, clock, auditing.SETTLE_SECONDS)["settled_orphaned_blocks"] == 3


def test_with_a_connector_blocks_of_nobody_are_its_own_until_they_have_settled() -> None:
    scheduler, clock = Scheduler("0.32.0"), Clock()
    scheduler.connector = object()  # type: ignore[assignment]
    scheduler.give("a", Status.RUNNING, 1)
    auditor = Auditor(scheduler, clock)
    scheduler.pool.take(3)
    auditor.happened("request")
    for _ in range(4):
        told = step(auditor, clock, 60.0)
    assert (told["orphaned_blocks"], told["owners"]["connector_pinned"]) == (0, 3)
    assert told["settled_orphaned_blocks"] is None

    told = step(auditor, clock, auditing.CONNECTOR_SETTLE_SECONDS)
    assert (told["orphaned_blocks"], told["owners"]["connector_pinned"]) == (3, 0)
    assert told["orphaned_after"] == {}, "what it pins at each request was not lost there"


def test_samples_are_limited_by_time_and_by_their_own_cost() -> None:
    scheduler, clock = Scheduler("0.32.0"), Clock()
    scheduler.give("a", Status.RUNNING, 1)
    auditor = Auditor(scheduler, clock)
    step(auditor, clock)
    for _ in range(1000):
        auditor.step()
    clock.now += 0.5
    auditor.step()
    time.sleep(0.05)

    assert auditor.report()["samples"] == 1


def test_an_idle_engine_that_got_busy_meanwhile_is_not_sampled() -> None:
    """Only the engine's own thread may look while it works: what it copies must stand still."""
    scheduler, clock = Scheduler("0.32.0"), Clock()
    answers = iter([False, True])
    scheduler.has_requests = lambda: next(answers)  # type: ignore[method-assign]
    assert Auditor(scheduler, clock).report()["samples"] == 0


def test_samples_far_apart_settle_only_what_two_of_them_show() -> None:
    scheduler, clock = Scheduler("0.32.0"), Clock()
    scheduler.give("a", Status.RUNNING, 1)
    auditor = Auditor(scheduler, clock)
    step(auditor, clock, 50.0)
    scheduler.pool.take(3)
    assert step(auditor, clock, 50.0)["settled_orphaned_blocks"] == 0
    assert step(auditor, clock, 50.0)["settled_orphaned_blocks"] == 3


def test_blocks_of_a_ghost_settle_too() -> None:
    scheduler, clock = Scheduler("0.32.0"), Clock()
    scheduler.give("a", None, 4)
    auditor = Auditor(scheduler, clock)
    for _ in range(4):
        told = step(auditor, clock)

    assert (told["settled_ghost_blocks"], told["settled_orphaned_blocks"]) == (4, 0)


def test_an_engine_is_called_what_vllm_calls_it() -> None:
    scheduler = Scheduler("0.32.0")
    parallel = scheduler.vllm_config.parallel_config
    parallel.data_parallel_rank = 3
    assert auditing.engine_rank(scheduler) == 3
    parallel.data_parallel_rank, parallel.data_parallel_index = 0, 1
    assert auditing.engine_rank(scheduler) == 1
    assert auditing.engine_rank(SimpleNamespace()) == 0


def test_an_idle_engine_is_sampled_when_somebody_asks() -> None:
    scheduler, clock = Scheduler("0.32.0"), Clock()
    scheduler.pool.take(2)
    auditor = Auditor(scheduler, clock)
    clock.now += 10

    eventually(lambda: auditor.report().get("orphaned_blocks") is not None)


def test_no_request_id_leaves_the_process() -> None:
    scheduler, clock = Scheduler("0.32.0"), Clock()
    scheduler.give("secret-request-id", Status.RUNNING, 1)
    assert "secret-request-id" not in json.dumps(step(Auditor(scheduler, clock), clock))


@pytest.fixture
def on_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit on a socket of this very process would be found by later tests."""
    monkeypatch.setenv("KVCACHE_AUDIT_LISTEN", "127.0.0.1:0")


@pytest.mark.usefixtures("on_tcp")
def test_a_process_that_was_forked_starts_anew() -> None:
    audits, scheduler = Audits(), Scheduler("0.32.0")
    first = audits.of(scheduler)
    audits._pid = -1  # as the child of a fork finds it
    assert audits.of(scheduler) is not first


def test_the_socket_answers_a_get_with_json_and_nothing_else_with_nothing() -> None:
    code = (
        "import os, sys; from kvcache_exporter.vllm_plugin.server import serve;"
        "serve(lambda: {'pid': os.getpid()}, 0); print(os.getpid(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        for request, wanted in ((b"GET / HTTP/1.1\r\n\r\n", True), (b"POST / HTTP/1.1\r\n", False)):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(5)
                client.connect(f"\0{NAME}/{pid}/0")
                client.sendall(request)
                answer = b"".join(iter(lambda: client.recv(65536), b""))
            assert (
                (json.loads(answer.split(b"\r\n\r\n")[1]) == {"pid": pid}) if wanted else not answer
            )
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


def test_tcp_adds_the_rank_to_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("KVCACHE_AUDIT_LISTEN", f"127.0.0.1:{port - 1}")
    serve(lambda: {"ok": True}, rank=1)
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b'"ok": true' in client.recv(4096)


@pytest.mark.parametrize(
    "scheduler", ["", "class Scheduler: pass", "raise RuntimeError('half imported')"]
)
def test_whatever_vllm_looks_like_loading_it_never_raises(scheduler: str, tmp_path: Path) -> None:
    files = {"kv_cache_manager.py": "class KVCacheManager: pass", "sched/scheduler.py": scheduler}
    for name, text in files.items():
        path = tmp_path / "vllm" / "v1" / "core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code = "from kvcache_exporter.vllm_plugin import register; register()"
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "nothing is audited" in done.stderr


@pytest.mark.usefixtures("on_tcp")
def test_an_engine_whose_inside_is_unknown_still_tells_that() -> None:
    class Unknown:
        """Nothing that we know is in it."""

    auditor = Audits().of(Unknown())
    auditor.step()
    assert auditor.report()["supported"] is False


def test_loading_it_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import kvcache_exporter.vllm_plugin.hooks;"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    third_party = set(done.stdout.split()) - set(sys.stdlib_module_names) - {"kvcache_exporter"}

    assert third_party == set()


def test_a_sample_that_meets_a_changing_table_is_left_out() -> None:
    scheduler, clock = Scheduler("0.32.0"), Clock()

    class Changing(dict[str, list[Block]]):
        def items(self) -> Any:
            raise RuntimeError("dictionary changed size during iteration")

    scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks = Changing()
    auditor = Auditor(scheduler, clock)
    clock.now += 5
    auditor.step()

    assert auditor.report()["supported"] is True
    assert threading.active_count() > 0
