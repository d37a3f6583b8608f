"""Load of every shape, and nothing wrong: any leak alarm is false."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.detection.scenario import Engine, Hold, Incidents, Restart, Scenario
from benchmarks.detection.scenarios import BUSY, HOUR
from benchmarks.detection.workload import (
    DAY,
    Arrivals,
    Curve,
    Floats,
    Workload,
    bursty,
    diurnal,
    jump,
    nightly,
    prefill,
    ramp,
    steady,
    walk,
)


def _growth(factor: float) -> Curve:
    return lambda t: 1 + (factor - 1) * t / (2 * DAY)


def _weekend(t: Floats) -> Floats:
    wave = np.sin(np.pi * (t % DAY) / DAY) ** 2
    return np.where(t < DAY, 0.5 + 2 * wave, 0.3 + 0.4 * wave)


_LONG = Workload(steady(1.0), long_share=0.0008, prompt_max=100_000, output_max=16_000)
_SMALL = replace(BUSY, pool_blocks=3000)
_GAPS = ((5 * HOUR, 5.5 * HOUR), (14 * HOUR, 17 * HOUR), (30 * HOUR, 30.2 * HOUR))
_EVERY_7_HOURS = tuple(Restart(7 * HOUR * i) for i in range(1, 7))

SCENARIOS = [
    Scenario("steady, busy", Workload(steady(2.0)), BUSY),
    Scenario("steady, light", Workload(steady(0.15))),
    Scenario("diurnal, idle nights", Workload(diurnal(0.02, 1.5))),
    Scenario("diurnal, never idle", Workload(diurnal(0.6, 3.0)), BUSY),
    Scenario("bursty", Workload(bursty(4.0, 0.3)), BUSY),
    Scenario("load ramp", Workload(ramp(0.5, 3.0)), BUSY),
    Scenario("prompts grow threefold", Workload(steady(1.3), prompt_scale=_growth(3)), BUSY),
    Scenario("outputs grow threefold", Workload(steady(1.2), output_scale=_growth(3)), BUSY),
    Scenario("saturated peaks", Workload(diurnal(0.5, 4.0)), _SMALL),
    Scenario(
        "saturated for 36 h",
        Workload(jump(1.0, 3.0, 12 * HOUR)),
        replace(BUSY, pool_blocks=2600),
    ),
    Scenario("rare 60k contexts", _LONG, replace(BUSY, pool_blocks=16384)),
    Scenario(
        "restart every 7 h", Workload(diurnal(0.3, 2.0)), BUSY, Incidents(restarts=_EVERY_7_HOURS)
    ),
    Scenario(
        "scrape gaps",
        Workload(diurnal(0.3, 2.0)),
        BUSY,
        Incidents(gaps=_GAPS, restarts=(Restart(16 * HOUR, 200.0),)),
    ),
    Scenario(
        "prefill engine, delayed frees",
        prefill(diurnal(0.1, 2.0)),
        Engine(hold=Hold(lost_share=0.02)),
    ),
    Scenario(
        "prefill engine, idle stall",
        prefill(steady(0.02)),
        Engine(hold=Hold(lost_share=0.05, needs_step=True)),
    ),
    Scenario("null block counted", Workload(diurnal(0.02, 1.0)), Engine(base_blocks=1)),
    Scenario("nightly batch", Workload(nightly(4.0, 0.3)), BUSY),
    Scenario(
        "prefix sharing ends",
        Workload(steady(2.0), sharing=lambda t: np.where(t < DAY, 0.95, 0.1), groups=6),
        BUSY,
    ),
    Scenario("load threefold at once", Workload(jump(1.0, 3.0, 20 * HOUR)), BUSY),
    Scenario(
        "hung for 40 min",
        Workload(steady(1.0)),
        BUSY,
        Incidents(hangs=((20 * HOUR, 20.67 * HOUR),)),
        tags=frozenset({"stalls"}),
    ),
    Scenario(
        "restart with a smaller pool",
        Workload(steady(1.5)),
        BUSY,
        Incidents(restarts=(Restart(20 * HOUR, 180.0, 5000),)),
    ),
    Scenario(
        "parked streaming sessions",
        Workload(diurnal(0.02, 1.0)),
        Engine(parked_sessions=5, parked_blocks=300),
    ),
    Scenario("weekday, then weekend", Workload(Arrivals(_weekend, 2.5)), BUSY),
    Scenario("abort storm", Workload(steady(1.5), abort_share=0.4), BUSY),
    Scenario("bound by max_num_seqs", Workload(steady(1.9)), replace(BUSY, max_requests=28)),
    Scenario("random-walk load", Workload(walk(1.2, 0.6)), BUSY),
    Scenario("monday ramp", Workload(ramp(0.3, 2.5, 10 * HOUR, 18 * HOUR)), BUSY),
    Scenario("steady, no aborts", Workload(steady(2.0), abort_share=0.0), BUSY),
    Scenario("random walk, no aborts", Workload(walk(1.2, 0.6), abort_share=0.0), BUSY),
    Scenario(
        "prompts grow, no aborts",
        Workload(steady(1.3), abort_share=0.0, prompt_scale=_growth(3)),
        BUSY,
    ),
]
