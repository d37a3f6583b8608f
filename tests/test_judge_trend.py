"""The regression behind the slope: exact where the answer is known, and its objections."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.indicators import _regression as regression
from kvcache_exporter.indicators._objection import CHANGED, Rows, objection
from kvcache_exporter.judge_settings import JudgeSettings

ROWS = 60


def made(seed: int, step: float = 0.0, ramp: float = 0.0, at: int = 40) -> tuple[list[float], ...]:
    """Load, hours and used blocks: 50 + 90 a request, and what begins after row *at*."""
    rng = random.Random(seed)
    load = [rng.uniform(10, 30) for _ in range(ROWS)]
    hours = [(i - ROWS + 1) / 6 for i in range(ROWS)]
    used = [
        50
        + 90 * x
        + rng.gauss(0, 20)
        + (step if i > at else 0)
        + ramp * max(0, hours[i] - hours[at])
        for i, x in enumerate(load)
    ]
    return load, hours, used


@given(st.integers(0, 10_000), st.integers(6, ROWS - 6))
def test_a_step_is_estimated_as_least_squares_would(seed: int, at: int) -> None:
    load, _, used = made(seed)
    weights = [1.0 + (i % 3) for i in range(ROWS)]
    scan = regression.scan_steps(regression.fit([[1.0] * ROWS, load], used, weights))
    step = [float(i > at) for i in range(ROWS)]
    design = np.array([[1.0] * ROWS, load, step]).T * np.array(weights)[:, None]
    expected, left, *_ = np.linalg.lstsq(design, np.array(used) * weights, rcond=None)
    assert scan.size[at] == pytest.approx(expected[2], rel=1e-6, abs=1e-6)
    error = np.sqrt(left[0] / (ROWS - 3) * np.linalg.inv(design.T @ design)[2, 2])
    assert scan.score[at] == pytest.approx(expected[2] / error, rel=1e-6, abs=1e-6)


@given(st.integers(0, 10_000), st.integers(0, ROWS - 6))
def test_a_ramp_is_estimated_as_least_squares_would(seed: int, at: int) -> None:
    load, hours, used = made(seed)
    model = regression.fit([[1.0] * ROWS, load], used, [1.0] * ROWS)
    scan = regression.scan_ramps(model, hours)
    ramp = [max(0.0, h - hours[at]) for h in hours]
    design = np.array([[1.0] * ROWS, load, ramp]).T
    expected, *_ = np.linalg.lstsq(design, np.array(used), rcond=None)
    assert scan.size[at] == pytest.approx(expected[2], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_true_moment_of_a_step_scores_highest(seed: int) -> None:
    load, _, used = made(seed, step=100)
    scan = regression.scan_steps(regression.fit([[1.0] * ROWS, load], used, [1.0] * ROWS))
    assert abs(max(range(ROWS), key=scan.score.__getitem__) - 40) <= 1
    assert scan.size[40] == pytest.approx(100, abs=20)


def test_what_load_alone_explains_is_nobodys_own() -> None:
    load = [float(i > 40) for i in range(ROWS)]
    scan = regression.scan_steps(
        regression.fit([[1.0] * ROWS, load], [5.0 * x for x in load], [1.0] * ROWS)
    )
    assert (scan.own[40], scan.score[40]) == (0.0, 0.0)


def test_a_column_that_says_nothing_new_is_left_out() -> None:
    load, _, used = made(1)
    twice = [2 * x + 3 for x in load]
    model = regression.fit([[1.0] * ROWS, load, twice], used, [1.0] * ROWS)
    assert len(model.basis) == 2


def rows(**columns: list[float]) -> Rows:
    """Twenty quiet rows but for the *columns* given."""
    quiet = {
        "end": [600.0 * i for i in range(20)],
        "scrapes": [40.0] * 20,
        "used": [1000.0] * 20,
        "running": [10.0] * 20,
        "prompt_load": [500.0] * 20,
        "output_load": [100.0] * 20,
        "finished_load": [0.0] * 20,
        "saturated": [0.0] * 20,
        "headroom": [900.0] * 20,
        "hits": [50.0] * 20,
        "queries": [100.0] * 20,
    }
    return Rows(**(quiet | columns))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        ({"headroom": [900.0] * 19 + [10.0]}, "only 10 blocks"),
        ({"prompt_load": [500.0] * 10 + [900.0] * 10}, CHANGED),
        ({"hits": [50.0] * 10 + [10.0] * 10}, CHANGED),
        ({"running": [10.0] * 10 + [90.0] * 10, "prompt_load": [500.0] * 10 + [4500.0] * 10,
          "output_load": [100.0] * 10 + [900.0] * 10}, "load changed"),
    ],
)  # fmt: skip
def test_a_rise_that_something_else_explains_is_objected_to(
    changed: dict[str, list[float]], words: str | None
) -> None:
    found = objection("step", 9, 120.0, 0.5, rows(**changed), 8192, JudgeSettings())
    assert found == words if words is None else found is not None and words in found


def test_a_rise_within_the_noise_is_objected_to() -> None:
    assert objection("step", 9, 15.0, 0.9, rows(), 1000, JudgeSettings()) is not None


def test_a_great_loss_in_a_full_cache_leaves_fewer_requests() -> None:
    full = {
        "saturated": [1.0] * 20,
        "headroom": [8000.0] * 20,
        "hits": [0.0] * 20,
        "queries": [0.0] * 20,
    }
    same = rows(**full)
    fewer = rows(
        **full,
        running=[10.0] * 10 + [6.0] * 10,
        prompt_load=[500.0] * 10 + [300.0] * 10,
        output_load=[100.0] * 10 + [60.0] * 10,
    )
    told = objection("step", 9, 4000.0, 0.9, same, 8192, JudgeSettings())
    assert told is not None
    assert "as many requests run" in told
    assert objection("step", 9, 4000.0, 0.9, fewer, 8192, JudgeSettings()) is None
