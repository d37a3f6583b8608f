"""The collector stays out of the cycles, and finds what has piled up all the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kvcache_exporter import garbage


class Knot:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    before = gc.get_threshold()
    garbage.begin()
    gc.collect()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def knots(number: int) -> weakref.ref[Knot]:
    """Leave garbage behind; return a reference to the last piece."""
    for _ in range(number):
        last = Knot()
    return weakref.ref(last)


def test_a_little_is_left_until_it_has_piled_up() -> None:
    left = knots(1_000)
    garbage.between_cycles(0)
    assert left() is not None
    more = knots(garbage.PILE)
    garbage.between_cycles(1)
    assert left() is None
    assert more() is None


def test_what_survived_once_is_found_within_an_hour_of_cycles() -> None:
    held = Knot()
    knots(garbage.PILE)
    garbage.between_cycles(0)
    assert gc.get_freeze_count() > 0
    left = weakref.ref(held)
    del held
    knots(garbage.PILE)
    garbage.between_cycles(1)
    assert left() is not None, "it was set aside, so it is not looked at again"
    for cycle in range(2, garbage.WHOLE_CYCLES):
        garbage.between_cycles(cycle)
    assert left() is None


def test_a_flood_within_one_cycle_does_not_wait_for_its_end() -> None:
    left = knots(1)
    knots(garbage.MOST)
    assert left() is None
