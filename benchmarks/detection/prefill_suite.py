"""Random prefill engines: one token, then the blocks wait to be fetched, some of them in vain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.detection.random_suite import draw_incidents, draw_leak, draw_workload
from benchmarks.detection.scenario import Engine, Hold, Scenario
from benchmarks.detection.workload import Workload

BUSIEST = 3.0
"""Requests a second beyond which a prefill engine is not asked."""


def random_prefill(seed: int, leaking: bool, name: str = "prefill") -> Scenario:
    """Blocks held for seconds, up to 4 % of them until the timeout, on older engines until a step.

    The pool is sized so that what is held at the busiest time takes a fifth to four fifths of it.
    """
    rng = np.random.default_rng((seed, 1))
    load = replace(
        draw_workload(rng, seed), output_median=1.0, output_sigma=0.01, output_scale=None
    )
    hold = Hold(
        (0.2, float(rng.uniform(1, 10))),
        float(rng.uniform(0, 0.04)),
        needs_step=bool(rng.random() < 0.3),
    )
    pool = max(1500, int(_held_blocks(load, hold) / rng.uniform(0.2, 0.8)))
    leak = draw_leak(rng, pool, load) if leaking else None
    engine = Engine(pool, tokens_per_second=float(rng.uniform(12, 50)), hold=hold)
    return Scenario(f"{name} {seed}", load, engine, draw_incidents(rng), leak)


def _held_blocks(load: Workload, hold: Hold) -> float:
    """Mean blocks held at the highest rate, by Little's law."""
    each = load.prompt_median * np.exp(load.prompt_sigma**2 / 2) / 16
    seconds = sum(hold.seconds) / 2 + hold.lost_share * hold.timeout_seconds
    return float(min(load.arrivals.peak, BUSIEST) * seconds * each + 20 * each)
