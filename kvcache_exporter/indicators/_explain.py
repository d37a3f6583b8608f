"""What load explains of used blocks: with room in the pool, in a full one, where blocks are held.

With room, arrivals decide what runs, and used blocks follow. A full pool turns that round: used
blocks stand still and decide what runs, so that a fit of used blocks to load would learn that they
do not depend on it. There the need of a request is taken from the times with room, or from all
times when there were too few. Where blocks may rightly outlive their request, throughput is load
too; on a prefill engine it is all there is, and the least use in twice the hold time stands for it.
"""

from __future__ import annotations

import math
from operator import mul

from kvcache_exporter.history import History
from kvcache_exporter.indicators import _regression as regression
from kvcache_exporter.indicators._objection import FULL_SHARE, Rows

ENOUGH_ROWS = 12
"""Rows with room from which on they tell what a request needs: three to each coefficient."""
HELD_FLOOR = 0.2
"""Part of the mean throughput by which holds scatter when there is next to none."""


def is_prefill(history: History) -> bool:
    """Whether blocks are held for others and next to nothing runs: requests leave after a step."""
    return bool(history.hold_seconds) and sum(history.blocks.column("running")) < len(
        history.blocks
    )


def explain(rows: Rows, history: History) -> regression.Fit:
    """Explain used blocks by load, so that a break can be looked for in what is left."""
    if is_prefill(history):
        return _held(rows)
    load = [[1.0] * len(rows.end), rows.running, rows.prompt_load, rows.output_load]
    if history.hold_seconds:
        load.append(_throughput(rows))
    room = [float(share < FULL_SHARE) for share in rows.saturated]
    if all(room):
        return regression.fit(load, rows.used, _weights(rows))
    if sum(room) >= ENOUGH_ROWS:
        return _at_times_full(rows, load, room)
    return _full(rows, room)


def _throughput(rows: Rows) -> list[float]:
    """Blocks of the requests that ended, for each scrape."""
    return [blocks / n for blocks, n in zip(rows.finished_load, rows.scrapes, strict=True)]


def _weights(rows: Rows) -> list[float]:
    """Fewer scrapes and more requests, each of its own size, make a row less certain."""
    pairs = zip(rows.scrapes, rows.running, strict=True)
    return [math.sqrt(n / (running + 2.0)) for n, running in pairs]


def _at_times_full(rows: Rows, columns: list[list[float]], room: list[float]) -> regression.Fit:
    """Rows with room fit load and break together; full ones only the break and a level."""
    constant, *load = columns
    weights = _weights(rows)
    beyond = regression.beyond([constant, *load], rows.used, list(map(mul, weights, room)))
    used = [u if free else b for u, b, free in zip(rows.used, beyond, room, strict=True)]
    split = [constant, room, *(list(map(mul, column, room)) for column in load)]
    return regression.fit(split, used, weights)


def _full(rows: Rows, room: list[float]) -> regression.Fit:
    """What is lost shows as fewer running requests, at the mean need of one."""
    full = [running * (1.0 - free) for running, free in zip(rows.running, room, strict=True)]
    blocks = regression.dot(rows.used, [1.0 - free for free in room])
    each = blocks / max(1.0, sum(full))
    mean = sum(full) / max(1.0, len(room) - sum(room))
    sizes = [
        [mean * load / running if running else 0.0 for load, running in zip(a, b, strict=True)]
        for a, b in ((rows.prompt_load, rows.running), (rows.output_load, rows.running))
    ]
    missing = [used - each * running for used, running in zip(rows.used, rows.running, strict=True)]
    return regression.fit([[1.0] * len(room), *sizes, room], missing, _weights(rows))


def _held(rows: Rows) -> regression.Fit:
    """What is held goes with throughput, by more at times of more, and scatters with it."""
    rate = _throughput(rows)
    mean = sum(rate) / len(rate)
    busy = [max(0.0, r - mean) for r in rate]
    floor = max(HELD_FLOOR * mean, 1.0)
    weights = [math.sqrt(n) / (r + floor) for n, r in zip(rows.scrapes, rate, strict=True)]
    return regression.fit([[1.0] * len(rate), rate, busy], rows.headroom, weights)
