"""A count inside the engine is evidence at once, for a leak and against one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvcache_exporter.judge import Judge
from kvcache_exporter.model import Audit, EngineReading, Judgement, Observation, State

START = 1_790_000_000.0
POOL = 10_000
COUNTED = Audit(
    pid=4711,
    engine="0",
    supported=True,
    pool_blocks=POOL,
    free_blocks=5_000,
    owners=(("running", 5_000), ("ghost", 0), ("finished_delayed", 0)),
    orphaned_blocks=0,
    settled_orphaned_blocks=0,
    settled_ghost_blocks=0,
)
NOT_SETTLED = replace(COUNTED, settled_orphaned_blocks=None, settled_ghost_blocks=None)
LOST = replace(
    COUNTED,
    owners=(("running", 4_985), ("ghost", 3)),
    orphaned_blocks=14,
    settled_orphaned_blocks=12,
    settled_ghost_blocks=3,
    orphaned_after=(("abort", 12), ("several", 2)),
)


def busy(used: int, time: float) -> EngineReading:
    """An engine that is never idle."""
    return EngineReading(
        "0",
        pool_blocks=POOL,
        used_blocks=used,
        running=20.0,
        waiting=0.0,
        generation_tokens=time,
        prompt_tokens=time,
        completions=time // 10,
        finished_requests=time // 10,
        first_tokens=time // 10,
    )


class Watched:
    """A judge that is told of a busy engine every ten seconds."""

    def __init__(self) -> None:
        self.judge = Judge()
        self.time = START

    def see(
        self, audit: Audit | None, seconds: float = 10.0, used: int = 5_000, growth: float = 0.0
    ) -> Judgement:
        begin = self.time
        while self.time < begin + seconds:
            self.time += 10.0
            level = used + int(growth * (self.time - begin))
            reading = busy(level, self.time - START)
            seen = Observation(self.time, "t", "0", reading, audit=audit)
            judgement = self.judge.observe(seen)
        return judgement


def test_a_settled_loss_is_a_leak_at_once_on_an_engine_that_is_never_idle() -> None:
    engine = Watched()
    engine.see(COUNTED, 60.0)
    judgement = engine.see(LOST)

    assert (judgement.state, judgement.leak_active, judgement.confidence) == (State.LEAK, True, 1.0)
    assert (judgement.orphaned_blocks, judgement.orphaned_blocks_low) == (17, 15)
    assert "counted inside the engine (process 4711)" in judgement.because[0]
    assert "12 after an abort" in judgement.because[0]


def test_a_loss_that_has_not_settled_is_no_leak() -> None:
    judgement = Watched().see(replace(NOT_SETTLED, orphaned_blocks=50), 60.0)
    assert not judgement.leak_active
    assert judgement.state is not State.LEAK


def test_nothing_lost_by_count_is_fine_at_once() -> None:
    judgement = Watched().see(COUNTED)
    assert (judgement.state, judgement.confidence) == (State.OK, 1.0)


def slow_growth(audit: Audit | None) -> Judgement:
    """Used blocks rise by 2,000 in six hours while the load stays the same."""
    engine = Watched()
    engine.see(audit, 4 * 3600.0)
    return engine.see(audit, 6 * 3600.0, growth=2_000 / 21_600)


def test_a_trend_is_overruled_where_every_block_has_a_living_owner() -> None:
    assert slow_growth(None).leak_active, "from outside it looks like a leak"
    judgement = slow_growth(COUNTED)
    assert (judgement.state, judgement.leak_active) == (State.OK, False)


@pytest.mark.parametrize(
    "audit",
    [
        replace(COUNTED, owners=(("finished_delayed", 2_000),)),
        replace(COUNTED, owners=(("connector_pinned", 2_000),)),
        replace(COUNTED, supported=False, reason="changed inside"),
        NOT_SETTLED,
        replace(COUNTED, age_seconds=600.0),
    ],
    ids=[
        "blocks wait for a transfer",
        "blocks are pinned for one",
        "not supported",
        "not settled",
        "old",
    ],
)
def test_a_count_that_proves_nothing_overrules_nothing(audit: Audit) -> None:
    assert slow_growth(audit).leak_active


def test_a_leak_ends_when_the_count_has_shown_nothing_lost_for_a_while() -> None:
    engine = Watched()
    engine.see(LOST, 60.0)
    assert engine.see(COUNTED, 300.0).leak_active, "a cached block may be lent to a request"
    assert not engine.see(COUNTED, 600.0).leak_active


def test_an_audit_that_falls_silent_leaves_what_it_proved() -> None:
    engine = Watched()
    engine.see(LOST, 60.0)
    assert engine.see(None, 600.0).leak_active
