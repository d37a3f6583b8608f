"""From observations to the verdict on leaks: what is called one, what is not, and how it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvcache_exporter.indicators import _look
from kvcache_exporter.judge import Judge
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import EngineReading, Observation, State
from tests.judging import HOUR, POOL, START, Engine, judge_all


def test_a_busy_healthy_day_is_ok_from_the_first_block_on() -> None:
    judgements = judge_all(Judge(), Engine().busy(24 * HOUR))
    assert judgements[0].state is State.UNKNOWN
    assert {j.state for j in judgements[60:]} == {State.OK}
    assert not any(j.leak_active for j in judgements)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_step_on_a_never_idle_engine_is_found_within_two_hours(seed: int) -> None:
    engine, judge = Engine(seed), Judge()
    assert not any(j.leak_active for j in judge_all(judge, engine.busy(6 * HOUR)))
    engine.lost = 0.03 * POOL
    last = judge_all(judge, engine.busy(2 * HOUR))[-1]
    assert last.state is State.LEAK
    assert last.orphaned_blocks == pytest.approx(0.03 * POOL, rel=0.25)
    assert last.orphaned_blocks_low in (None, 0)


def test_a_slow_ramp_gets_its_slope_and_a_time_to_exhaustion() -> None:
    engine, judge = Engine(), Judge()
    judge_all(judge, engine.busy(6 * HOUR))
    per_hour = 0.005 * POOL
    last = judge_all(judge, engine.busy(8 * HOUR, lose=lambda s: per_hour * s / HOUR))[-1]
    assert last.leak_active
    assert last.free_slope_per_second is not None
    assert last.free_slope_low_per_second is not None
    assert last.free_slope_high_per_second is not None
    assert last.free_slope_low_per_second < -per_hour / HOUR < last.free_slope_high_per_second
    assert last.exhaustion_earliest_time is not None
    assert last.exhaustion_time is not None
    assert START + 14 * HOUR < last.exhaustion_earliest_time < last.exhaustion_time


def test_three_times_the_load_is_no_leak() -> None:
    engine, judge = Engine(), Judge()
    judgements = judge_all(judge, engine.busy(6 * HOUR, running=10))
    judgements += judge_all(judge, engine.busy(6 * HOUR, running=30))
    assert not any(j.leak_active for j in judgements)


def test_blocks_seen_at_every_idle_moment_are_proven_orphaned() -> None:
    engine, judge = Engine(), Judge()
    judge_all(judge, engine.busy(HOUR))
    judge_all(judge, engine.idle(120))
    engine.lost = 7
    for _ in range(4):
        judge_all(judge, engine.busy(300))
        last = judge_all(judge, engine.idle(120))[-1]
    assert last.state is State.LEAK
    assert last.confidence == 1.0
    assert (last.orphaned_blocks, last.orphaned_blocks_low, last.idle_floor_blocks) == (7, 7, 7)


def test_a_clean_idle_reading_ends_a_leak_at_once() -> None:
    engine, judge = Engine(), Judge()
    judge_all(judge, engine.busy(6 * HOUR))
    engine.lost = 0.05 * POOL
    assert judge_all(judge, engine.busy(2 * HOUR))[-1].leak_active
    engine.lost = 0
    last = judge_all(judge, engine.idle(30))[-1]
    assert (last.state, last.leak_active, last.orphaned_blocks) == (State.OK, False, 0)


def test_a_leak_stays_reported_hours_after_growth_has_stopped() -> None:
    engine, judge = Engine(), Judge()
    judge_all(judge, engine.busy(6 * HOUR))
    judge_all(judge, engine.busy(3 * HOUR, lose=lambda s: 0.02 * POOL * s / HOUR))
    assert all(j.leak_active for j in judge_all(judge, engine.busy(12 * HOUR)))


def test_a_restart_frees_the_blocks_and_is_remembered_with_what_was_lost() -> None:
    engine, judge = Engine(), Judge()
    judge_all(judge, engine.busy(6 * HOUR))
    engine.lost = 0.05 * POOL
    judge_all(judge, engine.busy(2 * HOUR))
    engine.restart()
    last = judge_all(judge, engine.busy(2 * HOUR))[-1]
    assert (last.state, last.leak_active) == (State.OK, False)
    restart = next(f for f in last.findings if f.kind == "restart")
    assert "had leaked about" in restart.because


def test_a_leak_that_saturates_the_engine_stays_active() -> None:
    engine, judge = Engine(), Judge()
    judge_all(judge, engine.busy(6 * HOUR))
    judge_all(judge, engine.busy(4 * HOUR, lose=lambda s: 0.2 * POOL * s / HOUR))
    engine.constants = {"waiting": 50.0, "usage_ratio": 0.99}
    last = judge_all(judge, engine.busy(600))[-1]
    assert (last.state, last.leak_active) == (State.SATURATED, True)


def test_blocks_of_a_connector_are_held_then_suspect_never_proven() -> None:
    engine, judge = Engine(connector=True), Judge()
    judge_all(judge, engine.busy(HOUR))
    engine.lost = 0.1 * POOL
    held = judge_all(judge, engine.idle(300))[-1]
    assert held.state is State.HELD_IDLE
    assert "600 s" in held.because[0]
    suspect = judge_all(judge, engine.idle(600))[-1]
    assert (suspect.state, suspect.leak_active) == (State.LEAK_SUSPECT, False)
    assert not suspect.orphaned_blocks_low


def test_the_hold_time_of_a_target_overrules_the_connector() -> None:
    engine = Engine(connector=True)
    judge = Judge(replace(JudgeSettings(), hold_seconds=3600.0))
    judge_all(judge, engine.busy(HOUR))
    engine.lost = 0.1 * POOL
    assert judge_all(judge, engine.idle(1800))[-1].state is State.HELD_IDLE


def test_the_null_block_of_old_releases_is_no_orphan() -> None:
    engine, judge = Engine(), Judge()
    engine.lost = 1
    for _ in range(5):
        judge_all(judge, engine.busy(300))
        last = judge_all(judge, engine.idle(300))[-1]
    assert (last.state, last.orphaned_blocks, last.idle_floor_blocks) == (State.OK, 0, 1)


def test_readings_that_say_nothing_are_judged_without_a_word() -> None:
    judge = Judge()
    for second in range(0, 7200, 15):
        reading = EngineReading("0") if second % 60 else None
        last = judge.observe(Observation(START + second, "engine", "0", reading))
    assert last.state in (State.UNKNOWN, State.OK, State.NO_DATA)
    assert not last.leak_active


@pytest.mark.parametrize(
    "missing",
    ["prompt_tokens", "finished_requests", "first_tokens", "pool_blocks", "running", "waiting",
     "used_blocks", "completions", "block_size_tokens"],
)  # fmt: skip
def test_a_missing_column_is_less_evidence_and_no_crash(missing: str) -> None:
    engine, judge = Engine(**{missing: None}), Judge()
    judge_all(judge, engine.busy(4 * HOUR))
    judge_all(judge, engine.idle(600))
    engine.lost = 0.05 * POOL
    judge_all(judge, engine.busy(2 * HOUR))
    assert judge_all(judge, engine.idle(600))[-1].orphaned_blocks != 0


def test_an_older_or_repeated_time_stamp_changes_nothing() -> None:
    engine, judge = Engine(), Judge()
    seen = list(engine.busy(HOUR))
    judge_all(judge, iter(seen))
    before = judge.history.recent.total
    judge_all(judge, iter(seen[-5:]))
    assert judge.history.recent.total == before


def test_where_idle_moments_prove_a_loss_they_tell_its_rate_and_no_break_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, judge = Engine(), Judge()
    judge_all(judge, engine.busy(HOUR))
    last = judge_all(judge, engine.idle(120))[-1]
    for turn in range(20):
        if turn == 8:
            monkeypatch.setattr(_look, "search", lambda *_: pytest.fail("a break was looked for"))
        engine.lost += 10
        judge_all(judge, engine.busy(480))
        last = judge_all(judge, engine.idle(120))[-1]
    assert last.leak_active
    assert last.free_slope_per_second == pytest.approx(-10 / 600, rel=0.05)
    assert last.exhaustion_time is not None
