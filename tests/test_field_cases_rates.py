"""Field cases of rates: what a prefix hit ratio and preemptions mean, and what they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.story import Story
from tests.test_field_cases import HOUR, MINUTE, judged, said, states

DAY = 24 * HOUR


def serving(story: Story, seconds: float, ratio: float, tokens: float = 600, **more: Any) -> Story:
    """Serve with that hit ratio, some wobble included."""
    hits = lambda _: tokens * ratio * story.random.uniform(0.92, 1.08)  # noqa: E731
    return story.busy(seconds, queries=tokens, hits=hits, **more)


def drifts(engine: dict[str, Any]) -> bool:
    return any(finding["kind"] == "hit_ratio_drift" for finding in engine["findings"])


def week(interval: float = 300) -> Story:
    return Story(interval=interval)


def test_a_hit_ratio_that_falls_to_a_third_is_drift_within_three_hours(tmp_path: Path) -> None:
    story = serving(serving(week(), 3 * DAY, 0.6), 3 * HOUR, 0.2)
    engine = judged(tmp_path, story)
    assert drifts(engine)
    assert engine["final"]["drift"] is True
    assert abs(engine["final"]["hit_ratio_baseline"] - 0.6) < 0.03
    assert engine["final"]["state"] == "ok"


def test_a_steady_ratio_is_no_drift_and_is_token_weighted(tmp_path: Path) -> None:
    engine = judged(tmp_path, serving(week(), 3 * DAY, 0.6))
    assert engine["final"]["drift"] is False
    assert abs(engine["final"]["hit_ratio"] - 0.6) < 0.03


def test_without_a_day_of_history_a_collapse_is_still_found(tmp_path: Path) -> None:
    story = serving(serving(week(60), 8 * HOUR, 0.6), 6 * HOUR, 0.05)
    assert drifts(judged(tmp_path, story))


def test_a_drop_with_hardly_any_lookup_means_nothing(tmp_path: Path) -> None:
    story = serving(serving(week(), 3 * DAY, 0.6), 12 * HOUR, 0.0, tokens=1)
    assert not drifts(judged(tmp_path, story))


def test_hits_that_are_never_counted_are_information_and_not_drift(tmp_path: Path) -> None:
    engine = judged(tmp_path, serving(week(), 2 * DAY, 0.0))
    assert not drifts(engine)
    assert engine["final"]["drift"] is None
    assert engine["final"]["hit_ratio"] == 0.0


def test_the_low_local_ratio_of_a_decode_engine_is_normal(tmp_path: Path) -> None:
    story = week()
    for hour in range(72):
        serving(story, HOUR, 0.029 if hour % 2 else 0.084)
    assert not drifts(judged(tmp_path, story))


def test_a_cold_cache_after_a_restart_is_no_drift(tmp_path: Path) -> None:
    story = serving(week(), 3 * DAY, 0.6, process_start_time_seconds=1.0)
    story.forget()
    serving(story, 20 * MINUTE, 0.05, process_start_time_seconds=2.0)
    serving(story, 6 * HOUR, 0.55, process_start_time_seconds=2.0)
    engine = judged(tmp_path, story)
    assert not drifts(engine)
    assert "restart" in [finding["kind"] for finding in engine["findings"]]


def test_a_new_version_with_another_ratio_is_not_compared_with_the_old_one(tmp_path: Path) -> None:
    story = serving(week(), 3 * DAY, 0.32, process_start_time_seconds=1.0).forget()
    serving(story, 12 * HOUR, 0.01, process_start_time_seconds=2.0)
    assert not drifts(judged(tmp_path, story))


def test_a_smaller_pool_suppresses_drift_and_is_a_finding(tmp_path: Path) -> None:
    story = serving(week(), 3 * DAY, 0.6)
    story.pool = 4096
    engine = judged(tmp_path, serving(story, 8 * HOUR, 0.3))
    assert not drifts(engine)
    assert "capacity_change" in [finding["kind"] for finding in engine["findings"]]


def test_lookups_counted_again_before_a_full_cache_are_left_out(tmp_path: Path) -> None:
    story = serving(week(), 3 * DAY, 0.6)
    full: dict[str, Any] = {
        "running": 20,
        "waiting": 30,
        "used": 8100,
        "done": 1,
        "generation": 250,
    }
    story.during(8 * HOUR, prompt=600, queries=60_000, hits=3_000, **full)
    assert not drifts(judged(tmp_path, story))


def test_hits_of_preempted_requests_are_left_out(tmp_path: Path) -> None:
    story = serving(week(), 3 * DAY, 0.6, preemptions=0)
    serving(story, 8 * HOUR, 0.1, preemptions=0.01)
    assert not drifts(judged(tmp_path, story))


def test_a_store_that_is_written_and_never_read_is_a_finding(tmp_path: Path) -> None:
    story = week().busy(
        4 * HOUR,
        external_prefix_cache_queries_total=lambda s: 100 * s,
        external_prefix_cache_hits_total=0,
        kv_offload_store_bytes_total=lambda s: 1e6 * s,
    )
    engine = judged(tmp_path, story)
    assert [finding["kind"] for finding in engine["findings"]] == ["write_only_cache"]


def test_a_preemption_for_every_thirteenth_completion_is_healthy(tmp_path: Path) -> None:
    story = Story(interval=15).busy(4 * HOUR, done=1, preemptions=0.077)
    engine = judged(tmp_path, story)
    assert set(states(engine)) <= {"ok", "unknown"}
    assert abs(engine["final"]["preemptions_per_completion"] - 0.077) < 0.02


def test_more_preemptions_than_completions_at_half_speed_are_a_storm(tmp_path: Path) -> None:
    story = Story(interval=15).busy(4 * HOUR, preemptions=0)
    story.busy(30 * MINUTE, done=0.3, generation=100, preemptions=0.6)
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "preemption_storm"
    assert engine["final"]["preemptions_per_completion"] > 1
    assert "usually 250" in said(engine, "preemption_storm")


def test_many_preemptions_at_full_speed_are_no_storm(tmp_path: Path) -> None:
    story = Story(interval=15).busy(4 * HOUR, preemptions=0)
    engine = judged(tmp_path, story.busy(30 * MINUTE, preemptions=1.5))
    assert "preemption_storm" not in states(engine)


def test_a_full_and_slow_engine_without_a_preemption_shows_the_zero(tmp_path: Path) -> None:
    story = Story(interval=15).busy(HOUR, preemptions=0)
    full = {"running": 30, "waiting": 20, "used": 8150, "done": 0.2, "generation": 60}
    engine = judged(tmp_path, story.during(HOUR, preemptions=0, prompt=100, **full))
    assert engine["final"]["state"] == "saturated"
    assert engine["final"]["preemptions_per_completion"] == 0
