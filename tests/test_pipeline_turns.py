"""When each target has its turn, and what a late cycle skips."""

from __future__ import annotations

from collections import Counter

import pytest
from fleet import Fleet

from kvcache_exporter import pipeline
from kvcache_exporter.clock import SteadyClock
from kvcache_exporter.config import Config
from kvcache_exporter.pipeline import Pipeline
from kvcache_exporter.serve import _next_tick


def test_a_thousand_targets_are_spread_and_the_first_cycle_waits_for_nobody() -> None:
    config = Config(interval_seconds=10)
    one = Pipeline(config, [], Fleet().world())
    assert one._spread(1000) == 0.0
    one._cycles = 1
    assert one._spread(10) == pytest.approx(10 * pipeline.SPREAD_SECONDS_PER_TARGET)
    assert one._spread(100_000) == 10 - config.scrape_timeout_seconds


def test_targets_have_their_turns_together_and_evenly_over_the_cycle() -> None:
    turns = Counter(pipeline._slot(f"server-{n}:8000", 5.0) for n in range(1000))
    slots = round(5.0 / pipeline.SLOT_SECONDS)
    assert sorted(turns) == pytest.approx([n * pipeline.SLOT_SECONDS for n in range(slots)])
    assert max(turns.values()) < 3 * 1000 / slots


@pytest.mark.parametrize(
    ("now", "tick"),
    [
        (100.0, 110.0),
        (100.4, 110.0),
        (109.999, 110.0),
        (110.0, 120.0),
        (147.0, 150.0),
        (95.0, 100.0),
    ],
    ids=["at_once", "soon", "just_in_time", "too_late", "missed_four", "reloaded_before_its_tick"],
)
def test_a_missed_tick_is_skipped_and_never_made_up_for(now: float, tick: float) -> None:
    assert _next_tick(100.0, 10.0, now) == tick


def test_the_clock_ignores_the_wall_and_never_goes_back() -> None:
    wall, monotonic = [1_790_000_000.0], [5.0]
    clock = SteadyClock(lambda: wall[0], lambda: monotonic[0])
    assert clock() == 1_790_000_000.0
    for jump in (3600.0, -7200.0, -1e9):
        wall[0] += jump
        monotonic[0] += 1.0
    assert clock() == 1_790_000_003.0
