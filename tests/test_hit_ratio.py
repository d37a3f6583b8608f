"""Drift of the prefix hit ratio: what counts as a drop, and what the slots beneath remember."""

from __future__ import annotations

import math
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.history import History
from kvcache_exporter.history.hits import SLOT_SECONDS, SLOTS, HitLog
from kvcache_exporter.indicators import hit_ratio_drift
from kvcache_exporter.indicators._slots import recent_ratio
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import EngineReading, Indication, Observation

MIDNIGHT = 1_789_948_800.0
DAY, HOUR = 96, 4
"""In slots."""
SETTINGS = JudgeSettings()


def counted(hits: float, queries: float, preemptions: float = 0.0) -> EngineReading:
    return EngineReading(
        "0", prefix_hit_tokens=hits, prefix_query_tokens=queries, preemptions=preemptions
    )


class Engine:
    """Counts lookups and hits, and is scraped whenever a slot ends."""

    def __init__(self, noise: float = 0.02, rhythm: float = 0.0) -> None:
        self.history, self.random = History(SETTINGS), Random(1)
        self.noise, self.rhythm = noise, rhythm
        self.slot, self.hits, self.queries = 0, 0.0, 0.0

    def serve(self, slots: int, ratio: float, tokens: float = 400_000) -> Engine:
        for _ in range(slots):
            self.slot += 1
            hour = ratio + self.rhythm * math.sin(2 * math.pi * self.slot / DAY)
            self.hits += tokens * max(0.0, hour + self.random.gauss(0, self.noise))
            self.queries += tokens
            self.scrape()
        return self

    def scrape(self, later: float = 0.0) -> None:
        """Scrape so many seconds after the last slot."""
        time = MIDNIGHT + self.slot * SLOT_SECONDS + later
        reading = counted(self.hits, self.queries)
        self.history.add(Observation(time, "target", "0", reading))

    def says(self) -> Indication:
        answer = hit_ratio_drift.indicate(self.history, SETTINGS)
        assert answer is not None
        return answer


def test_a_fall_by_ten_points_is_drift_within_two_hours() -> None:
    answer = Engine().serve(3 * DAY, 0.5).serve(2 * HOUR, 0.4).says()
    assert answer.alarming
    assert "at the same time of earlier days" in answer.because


def test_the_same_fall_is_no_drift_where_slots_always_differ_more() -> None:
    answer = Engine(noise=0.15).serve(3 * DAY, 0.5).serve(2 * HOUR, 0.35).says()
    assert not answer.alarming
    assert "times the usual noise" in answer.because


def test_a_fall_by_five_points_is_never_drift() -> None:
    assert not Engine(noise=0.0).serve(3 * DAY, 0.5).serve(2 * DAY // 3, 0.45).says().alarming


def test_a_daily_rhythm_is_no_drift() -> None:
    engine = Engine(rhythm=0.15).serve(2 * DAY, 0.5)
    assert not any(engine.serve(1, 0.5).says().alarming for _ in range(DAY))


def test_a_fall_is_seen_through_a_daily_rhythm() -> None:
    assert Engine(rhythm=0.15).serve(3 * DAY, 0.5).serve(4 * HOUR, 0.4).says().alarming


def test_an_hour_of_strangers_is_no_drift_however_it_lies_in_the_slots() -> None:
    engine = Engine().serve(3 * DAY, 0.5).serve(1, 0.3).serve(3, 0.1).serve(1, 0.3)
    assert not any(engine.serve(1, 0.5).says().alarming for _ in range(DAY // 2))


def test_a_fall_that_the_last_hour_does_not_show_is_over() -> None:
    engine = Engine().serve(3 * DAY, 0.5).serve(DAY // 4, 0.3)
    assert engine.says().alarming
    assert not engine.serve(HOUR, 0.5).says().alarming


def test_a_day_is_enough_to_compare_with() -> None:
    engine = Engine().serve(DAY + 3 * HOUR, 0.5)
    assert "at the same time of earlier days" in engine.says().because
    assert engine.serve(2 * HOUR, 0.2).says().alarming


def test_slots_are_looked_at_once_each() -> None:
    engine = Engine().serve(2 * DAY, 0.5)
    looks = []
    for seconds in (60, 120, 900):
        engine.scrape(seconds)
        engine.says()
        looks.append(engine.history.memo["hit_ratio_drift"])
    assert looks[0] is looks[1]
    assert looks[1] is not looks[2]


@given(gaps=st.lists(st.integers(1, 10**6) | st.integers(1, 40), max_size=60))
def test_every_slot_is_a_row_and_no_gap_makes_more_than_three_days_of_them(gaps: list[int]) -> None:
    log, slot = HitLog(), 10**6
    for i, gap in enumerate([0, *gaps]):
        slot += gap
        log.add((slot + 0.5) * SLOT_SECONDS, counted(i, 2 * i), counted(i + 1, 2 * i + 2, i % 2))
    assert len(log.table) == min(SLOTS, 1 + sum(gaps))
    assert log.slot == slot
    assert log.disturbed < 1 << SLOTS
    rows = [log.table.last("queries", back) for back in range(len(log.table))]
    seen = {sum(gaps) - sum(gaps[:i]) for i in range(len(gaps) + 1)}
    assert [back for back, queries in enumerate(rows) if queries] == sorted(
        back for back in seen if back < SLOTS
    )


def test_a_disturbed_slot_stays_marked_while_it_moves_back() -> None:
    log = HitLog()
    for slot, preemptions in enumerate((0, 1, 1, 1)):
        before = counted(0, 0, max(0, preemptions - (slot == 1)))
        log.add((slot + 1) * SLOT_SECONDS, before, counted(1, 2, preemptions))
    assert log.disturbed == 0b100


def test_what_is_counted_up_to_a_boundary_lies_before_it() -> None:
    log = HitLog()
    log.add(5 * SLOT_SECONDS, counted(0, 0), counted(1, 2))
    assert log.slot == 4


def test_the_ratio_shown_covers_the_last_slots_only() -> None:
    engine = Engine(noise=0.0).serve(DAY, 0.5).serve(8, 0.25)
    assert recent_ratio(engine.history, 8) == 0.25
    engine.scrape(86_400)
    assert recent_ratio(engine.history, 8) is None
