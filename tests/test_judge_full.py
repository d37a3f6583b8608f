"""A full cache: what is lost shows as fewer running requests, and in the end as none at all."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kvcache_exporter.history import History
from kvcache_exporter.indicators import _regression as regression
from kvcache_exporter.indicators._explain import explain
from kvcache_exporter.judge import Judge
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Observation, State
from tests.judging import HOUR, POOL, Engine, judge_all
from tests.test_judge_trend import rows


def full_rows(lost: list[float], seed: int = 3) -> dict[str, list[float]]:
    """Rows of a pool that is always full: requests of about 60 blocks take what is not lost."""
    rng = random.Random(seed)
    each = [rng.gauss(60, 1) for _ in lost]
    running = [(POOL - gone) / need for gone, need in zip(lost, each, strict=True)]
    return {
        "end": [600.0 * i for i in range(len(lost))],
        "scrapes": [40.0] * len(lost),
        "used": [float(POOL)] * len(lost),
        "running": running,
        "prompt_load": [50.0 * r for r in running],
        "output_load": [10.0 * r for r in running],
        "finished_load": [0.0] * len(lost),
        "saturated": [1.0] * len(lost),
        "headroom": [float(POOL) - r for r in running],
        "hits": [0.0] * len(lost),
        "queries": [0.0] * len(lost),
    }


def test_what_a_full_pool_lost_is_seen_in_blocks() -> None:
    lost = [0.0] * 30 + [800.0] * 30
    scan = regression.scan_steps(explain(rows(**full_rows(lost)), History(JudgeSettings())))
    assert scan.size[29] == pytest.approx(800, rel=0.15)
    assert scan.score[29] > 10


def test_times_with_room_tell_what_a_request_needs_at_times_without() -> None:
    lost = [0.0] * 36 + [800.0] * 24
    made = full_rows(lost)
    for i in range(0, 60, 2):
        share = 0.2 + 0.5 * (i % 7) / 7
        made["running"][i] *= share
        for name in ("prompt_load", "output_load"):
            made[name][i] *= share
        made["used"][i] = lost[i] + share * (POOL - lost[i])
        made["saturated"][i] = 0.0
    scan = regression.scan_steps(explain(rows(**made), History(JudgeSettings())))
    assert scan.size[35] == pytest.approx(800, rel=0.1)
    assert max(range(60), key=scan.score.__getitem__) == 35


def wedged(engine: Engine, seconds: float, used: int, **constants: object) -> list[Observation]:
    """Nothing runs or moves, requests wait, and *used* blocks are."""
    seen = []
    for _ in range(int(seconds / engine.interval)):
        engine.time += engine.interval
        reading = replace(
            engine.reading,
            waiting=5.0,
            used_blocks=used,
            usage_ratio=used / POOL,
            **({"running": 0.0} | constants),  # type: ignore[arg-type]
        )
        seen.append(Observation(engine.time, "engine", "0", reading))
    return seen


@pytest.mark.parametrize("connector", [False, True])
def test_a_full_cache_that_nobody_works_with_is_lost(connector: bool) -> None:
    engine, judge = Engine(connector=connector), Judge()
    judge_all(judge, engine.busy(HOUR))
    last = judge_all(judge, iter(wedged(engine, 0.5 * HOUR, POOL, connector=connector)))[-1]
    assert last.state is State.STALLED
    assert last.leak_active
    assert last.orphaned_blocks == POOL
    assert not last.orphaned_blocks_low


def test_a_full_cache_within_the_hold_time_is_not_lost_yet() -> None:
    engine, judge = Engine(connector=True), Judge()
    judge_all(judge, engine.busy(HOUR))
    last = judge_all(judge, iter(wedged(engine, 540, POOL, connector=True)))[-1]
    assert not last.leak_active


def test_a_wedge_with_room_in_the_cache_says_nothing_of_a_leak() -> None:
    engine, judge = Engine(), Judge()
    judge_all(judge, engine.busy(HOUR))
    last = judge_all(judge, iter(wedged(engine, HOUR, POOL // 2)))[-1]
    assert not last.leak_active


def test_a_cache_that_fills_up_is_told_after_a_minute_of_an_engine_that_was_calm() -> None:
    engine, judge = Engine(), Judge()
    assert judge_all(judge, engine.busy(HOUR))[-1].state is State.OK
    full = wedged(engine, 90, POOL, running=20.0)
    states = [judge.observe(seen).state for seen in full]
    assert states[-1] is State.SATURATED
