"""Simulated servers in virtual time: busy, replaced, restarted, and at times as bad as can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from benchmarks.scrape.pages import Busy
from kvcache_exporter.model import Problem

Answer = bytes | Problem
STEP_SECONDS = 10.0
START = b"1.79596598619e+09"
POOL = b'num_gpu_blocks="512"'


def _raises(page: bytes, chance: Random) -> Answer:
    raise RuntimeError("a fault of ours")


def _relabelled(label: bytes) -> Callable[[bytes, Random], Answer]:
    def change(page: bytes, chance: Random) -> Answer:
        start = page.index(label + b'="') + len(label) + 2
        old = page[start : page.index(b'"', start)]
        return page.replace(
            b'%b="%b"' % (label, old), b'%b="%d"' % (label, chance.randrange(10**9))
        )

    return change


def _many_engines(page: bytes, chance: Random) -> Answer:
    return b"".join(
        line.replace(b'engine="0"', b'engine="%d"' % engine)
        for line in page.splitlines(keepends=True)
        for engine in (range(70) if b'engine="0"' in line else range(1))
    )


FAULTS: Mapping[str, Callable[[bytes, Random], Answer]] = {
    "refused": lambda page, chance: Problem("refused", "nothing listens there: start vLLM"),
    "timeout": lambda page, chance: Problem("timeout", "no answer in time: does the engine hang?"),
    "html": lambda page, chance: b"<html>sign in</html>\n",
    "empty": lambda page, chance: b"",
    "foreign": lambda page, chance: b"node_load1 1\n",
    "cut": lambda page, chance: page[: chance.randrange(1, len(page) - 1)],
    "not_a_number": lambda page, chance: page.replace(b"} 0.0\n", b"} NaN\n"),
    "not_a_page": lambda page, chance: page.replace(b"{", b"{{"),
    "models_come_and_go": _relabelled(b"model_name"),
    "engines_come_and_go": _relabelled(b"engine"),
    "seventy_engines": _many_engines,
    "raises": _raises,
}
"""What a target may do for a while, made from its true page."""


class Engine:
    """One server under one name; a restart makes another process with another pool of it."""

    def __init__(self, name: str, page: bytes, now: float, chance: Random) -> None:
        self.name = name
        self.fault = ""
        self.until = 0.0
        self._page = page
        self._chance = chance
        self.restart(now)

    def restart(self, now: float) -> None:
        """Begin anew, with counters at 0."""
        self._started = now
        pool = POOL.replace(b"512", b"%d" % self._chance.randrange(256, 4096))
        self._busy = Busy(self._page.replace(START, b"%f" % now).replace(POOL, pool))

    def answer(self, now: float) -> Answer:
        """Return what a scrape gets now."""
        page = self._busy.at(int((now - self._started) / STEP_SECONDS))
        return page if now >= self.until else FAULTS[self.fault](page, self._chance)
