"""Who computes for long lets answers go first, and is stopped by no crowd."""

from __future__ import annotations

import pytest

from kvcache_exporter.web.turn import ARRIVAL_SECONDS, CYCLE_SECONDS, STEP_SECONDS, Turn


class Sleeper:
    def __init__(self) -> None:
        self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def test_nobody_waits_while_nobody_is_answered() -> None:
    sleeper = Sleeper()
    turn = Turn(sleeper.sleep)
    with turn.answering():
        pass
    turn.give_way()
    assert sleeper.slept == 0.0


def test_who_computes_waits_until_the_last_answer_is_given() -> None:
    steps = iter(range(3))

    def answered(_: float) -> None:
        if next(steps) == 2:
            answer.__exit__(None, None, None)

    turn = Turn(answered)
    answer = turn.answering()
    answer.__enter__()
    turn.give_way()
    assert next(steps, None) is None


def test_a_client_that_has_just_connected_goes_first_and_one_that_stays_silent_does_not() -> None:
    sleeper = Sleeper()
    turn = Turn(sleeper.sleep, lambda: sleeper.slept)
    turn.arrived()
    turn.give_way()
    assert sleeper.slept == pytest.approx(ARRIVAL_SECONDS, abs=STEP_SECONDS)
    turn.give_way()
    assert sleeper.slept == pytest.approx(ARRIVAL_SECONDS, abs=STEP_SECONDS)


def test_a_crowd_that_never_ends_costs_a_cycle_its_share_and_no_more() -> None:
    sleeper = Sleeper()
    turn = Turn(sleeper.sleep)
    with turn.answering():
        for cycles in (1, 2):
            turn.renew()
            for _ in range(3):
                turn.give_way()
            assert sleeper.slept == pytest.approx(cycles * CYCLE_SECONDS, abs=2 * STEP_SECONDS)


def test_an_answer_that_fails_holds_nobody_up() -> None:
    sleeper = Sleeper()
    turn = Turn(sleeper.sleep)
    with pytest.raises(OSError, match="gone"), turn.answering():
        raise OSError("gone")
    turn.give_way()
    assert sleeper.slept == 0.0
