"""The audit inside vLLM: every block has an owner or is counted as nobody's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepped import eventually
from vllm_shapes import RELEASES, Pool, Scheduler, Status

from kvcache_exporter.vllm_plugin import auditor as auditing
from kvcache_exporter.vllm_plugin import walk
from kvcache_exporter.vllm_plugin.auditor import Auditor
from kvcache_exporter.vllm_plugin.walk import UnsupportedError, count, snapshot

pytestmark = pytest.mark.usefixtures("cheap_samples")


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
