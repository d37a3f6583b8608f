"""The collector stays out of the cycles, and finds what has piled up all the same."""

from __future__ import annotations

import asyncio
import gc
import http.client
import weakref
from collections.abc import Callable, Iterator

import hostile
import pytest

from kvcache_exporter import garbage
from kvcache_exporter.model import Target
from kvcache_exporter.scrape import Client
from kvcache_exporter.web import Latest, Page, Server, pages_of


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


# --- what we do leaves it nothing to find -----------------------------------------------------

OURS = {"_SelectorSocketTransport", "socket", "traceback", "frame", "ScrapeError", "Connection"}


def litter(act: Callable[[], object]) -> set[str]:
    """Types of what only the collector could free after *act* was done many times."""
    act()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(20):
            act()
        gc.collect()
        return {type(left).__name__ for left in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def test_an_answered_client_leaves_nothing_behind() -> None:
    server = Server("127.0.0.1:0", pages_of(Latest({"/metrics": Page.of(b"up 1\n")})))
    server.start()

    def ask() -> None:
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        client.request("GET", "/metrics")
        assert client.getresponse().read() == b"up 1\n"
        client.close()

    try:
        assert not litter(ask) & OURS
    finally:
        server.stop()


@pytest.mark.parametrize(
    "behave",
    [
        hostile.silent,
        hostile.hang_up,
        hostile.reset,
        hostile.answer(hostile.response()),
        hostile.answer(hostile.response(status="500 Internal Server Error")),
        hostile.answer(hostile.response()[:-9]),
    ],
    ids=["silent", "hangs up", "resets", "closes", "fails", "cuts"],
)
def test_neither_does_a_scrape_of_a_bad_target(behave: hostile.Behaviour) -> None:
    with hostile.serve(behave) as server:
        assert not litter(lambda: scrape(server.url)) & OURS


def test_nor_one_that_nobody_answers() -> None:
    assert not litter(lambda: scrape("http://127.0.0.1:1/metrics")) & OURS


def scrape(url: str) -> None:
    async def once() -> None:
        client = Client(timeout_seconds=0.05)
        await client.fetch(Target("t", url))
        await client.close()
        await asyncio.sleep(0.01)

    asyncio.run(once())
