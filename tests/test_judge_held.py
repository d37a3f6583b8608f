"""Where blocks outlive their request: throughput explains them, and a rise beyond it is a loss."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from kvcache_exporter.history import History
from kvcache_exporter.history.blocks import append_block, new_tables
from kvcache_exporter.indicators import _regression as regression
from kvcache_exporter.indicators._explain import explain, is_prefill
from kvcache_exporter.indicators._trend import search
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import EngineReading
from tests.judging import POOL
from tests.test_judge_trend import rows

HOLD = JudgeSettings(hold_seconds=600.0)
BLOCK = 600.0


def history(running: float) -> History:
    """Ten hours of blocks of an engine that holds blocks for others."""
    made = History(HOLD)
    for i in range(60):
        row = dict.fromkeys(made.blocks.columns, 0.0)
        row |= {"end": BLOCK * i, "scrapes": 40.0, "running": running}
        made.blocks.append(list(row.values()))
    return made


def held_rows(lost: Callable[[int], float], running: float = 0.05) -> dict[str, list[float]]:
    """Twenty hours: by day five times the throughput, and what is held goes with it."""
    rng = random.Random(5)
    rate = [5.0 if i // 30 % 2 else 1.0 for i in range(120)]
    held = [40 * r * rng.uniform(0.9, 1.1) + lost(i) for i, r in enumerate(rate)]
    return {
        "end": [BLOCK * i for i in range(120)],
        "scrapes": [40.0] * 120,
        "used": [h + 10 * running for h in held],
        "running": [running * rng.uniform(0.9, 1.1) for _ in held],
        "prompt_load": [8 * running] * 120,
        "output_load": [2 * running] * 120,
        "finished_load": [40 * 250 * r for r in rate],
        "saturated": [0.0] * 120,
        "headroom": held,
        "hits": [0.0] * 120,
        "queries": [0.0] * 120,
    }


def test_an_engine_is_a_prefill_engine_when_next_to_nothing_runs_and_blocks_are_held() -> None:
    assert is_prefill(history(running=0.1))
    assert not is_prefill(history(running=12.0))
    assert not is_prefill(History(JudgeSettings()))


@pytest.mark.parametrize("running", [0.05, 12.0])
def test_five_times_the_throughput_explains_five_times_the_held_blocks(running: float) -> None:
    made = explain(rows(**held_rows(lambda _: 0.0, running)), history(running))
    assert max(regression.scan_steps(made).score) < HOLD.trend_hold_score


@pytest.mark.parametrize("running", [0.05, 12.0])
def test_what_throughput_does_not_explain_stands_out(running: float) -> None:
    lost = explain(rows(**held_rows(lambda i: 90.0 if i >= 80 else 0.0, running)), history(running))
    scan = regression.scan_steps(lost)
    assert max(range(120), key=scan.score.__getitem__) == 79
    assert scan.score[79] > HOLD.trend_hold_score
    assert scan.size[79] == pytest.approx(90, rel=0.2)


@pytest.mark.parametrize("together", [1, 2, 3, 4, 7])
def test_an_hour_long_ago_shows_the_headroom_that_its_blocks_showed_then(together: int) -> None:
    blocks, hours = new_tables()
    rng = random.Random(1)
    shown = [rng.uniform(0, 100) for _ in range(360)]
    for i, headroom in enumerate(shown):
        append_block(blocks, hours, _block(i, headroom), together)
    size = min(together, 6)
    leasts = [min(shown[i : i + size]) for i in range(0, len(shown) - size + 1, size)]
    of_hours = list(hours.column("headroom"))
    assert sum(of_hours) / len(of_hours) == pytest.approx(sum(leasts) / len(leasts), rel=0.2)


def test_a_block_that_is_no_evidence_tells_an_hour_nothing_about_headroom() -> None:
    blocks, hours = new_tables()
    for i in range(61):
        append_block(blocks, hours, _block(i, math.nan, scrapes=0.0) if i % 2 else _block(i, 50.0))
    assert list(hours.column("headroom")) == [50.0]


def _block(number: int, headroom: float, scrapes: float = 40.0) -> list[float]:
    row = dict.fromkeys(new_tables()[0].columns, 0.0)
    row |= {"end": BLOCK * number, "scrapes": scrapes, "headroom": headroom}
    return list(row.values())


def test_held_blocks_that_come_with_the_days_batch_are_no_loss_though_hours_have_passed() -> None:
    """As on an engine that was called leaking when its batch came again after a day."""
    made, rng = History(HOLD), random.Random(3)
    calls = []
    for i in range(200):
        batch = i % 144 < 24
        mean = 300.0 if batch else 2.0
        row = dict.fromkeys(made.blocks.columns, 0.0) | {
            "end": BLOCK * i,
            "scrapes": 40.0,
            "running": 0.05,
            "finished_load": 40.0 * (1300 if batch else 220),
            "headroom": mean * rng.uniform(0.1, 1.3),
        }
        append_block(made.blocks, made.hours, list(row.values()))
        made.time, made.origin = BLOCK * (i + 1), 0.0
        calls.append(_search(made))
    assert max(calls) < HOLD.trend_hold_score


def _search(made: History) -> float:
    made.known = EngineReading("0", pool_blocks=POOL)
    found = search(made, HOLD)
    return found.score if found is not None and found.objection is None else 0.0
