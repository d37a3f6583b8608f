"""When the auditor samples, what settles, and what it says about whom."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest
from stepped import Clock, eventually, step
from vllm_shapes import Scheduler, Status

from kvcache_exporter.vllm_plugin import auditor as auditing
from kvcache_exporter.vllm_plugin.auditor import Auditor

pytestmark = pytest.mark.usefixtures("cheap_samples")


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
