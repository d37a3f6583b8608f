"""Leaks of every shape under load of every shape; the true loss travels with the trace."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.detection.leaks import (
    Accelerating,
    Constant,
    Leak,
    Nightly,
    PerAbort,
    PerFinish,
    PerPreemption,
    Plateau,
    Step,
    UnderLoad,
)
from benchmarks.detection.scenario import Engine, Hold, Incidents, Restart, Scenario
from benchmarks.detection.scenarios import BUSY, HOUR, percent
from benchmarks.detection.workload import (
    DAY,
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

_BUSY_LOAD = Workload(steady(2.0))
_NIGHTS = Workload(diurnal(0.02, 1.5))
_LONG = Workload(steady(1.0), long_share=0.0008, prompt_max=100_000, output_max=16_000)
_TWICE_A_DAY = tuple(Restart(12 * HOUR * i) for i in range(1, 4))
_SMALL = replace(BUSY, pool_blocks=3000)
_TIGHT = replace(BUSY, pool_blocks=2600)
_LARGE = replace(BUSY, pool_blocks=16384)


def _constant(rate: float, start: float = 12 * HOUR, pool: int = 8192) -> Leak:
    return Constant(rate=percent(rate, pool), start=start)


def _rates(what: str, load: Workload, engine: Engine, rates: tuple[float, ...]) -> list[Scenario]:
    return [Scenario(f"{r} %/h, {what}", load, engine, leak=_constant(r)) for r in rates]


SCENARIOS = [
    *_rates("steady, busy", _BUSY_LOAD, BUSY, (5, 2, 1, 0.5, 0.2, 0.1)),
    *_rates("diurnal, idle nights", _NIGHTS, Engine(), (1, 0.2, 0.05, 0.01)),
    *_rates("diurnal, never idle", Workload(diurnal(0.6, 3.0)), BUSY, (2, 1, 0.5)),
    *_rates("bursty", Workload(bursty(4.0, 0.3)), BUSY, (1, 0.3)),
    *_rates("no aborts", Workload(steady(2.0), abort_share=0.0), BUSY, (1, 0.2, 0.05)),
    *_rates("load ramp", Workload(ramp(0.5, 2.5)), BUSY, (1,)),
    *_rates("load falls", Workload(ramp(2.5, 0.8)), BUSY, (1,)),
    *_rates("random walk", Workload(walk(1.2, 0.6)), BUSY, (1,)),
    *_rates(
        "prompts grow",
        Workload(steady(1.3), prompt_scale=lambda t: 1 + t / (2 * DAY)),
        BUSY,
        (1,),
    ),
    Scenario("aborts leak, busy", _BUSY_LOAD, BUSY, leak=PerAbort(probability=0.02)),
    Scenario("aborts leak, idle nights", _NIGHTS, leak=PerAbort(probability=0.01)),
    Scenario("finishes leak a block, busy", _BUSY_LOAD, BUSY, leak=PerFinish(probability=0.01)),
    Scenario("step 5 %, busy", _BUSY_LOAD, BUSY, leak=Step(blocks=410)),
    Scenario("step 0.5 %, idle nights", _NIGHTS, leak=Step(blocks=41)),
    Scenario("under load only", Workload(diurnal(0.02, 2.0)), leak=UnderLoad(rate=60, running=6)),
    Scenario(
        "preemptions leak",
        Workload(diurnal(0.5, 4.0)),
        _SMALL,
        leak=PerPreemption(probability=0.02, share=0.3),
    ),
    Scenario(
        "nightly batch leaks", Workload(nightly(4.0, 0.3)), BUSY, leak=Nightly(rate=160, hours=2)
    ),
    Scenario(
        "1 %/h, restart every 12 h",
        _NIGHTS,
        incidents=Incidents(restarts=_TWICE_A_DAY),
        leak=_constant(1, 13 * HOUR),
    ),
    Scenario(
        "lost transfers, light prefill engine",
        prefill(steady(0.05)),
        Engine(hold=Hold(needs_step=True)),
        leak=PerFinish(probability=0.02, blocks=50),
    ),
    Scenario("1 %/h since boot, busy", _BUSY_LOAD, BUSY, leak=_constant(1, 0.0)),
    Scenario("plateau at 3 %, busy", _BUSY_LOAD, BUSY, leak=Plateau(rate=82, ceiling=246)),
    Scenario("accelerating, busy", _BUSY_LOAD, BUSY, leak=Accelerating(rate=10)),
    Scenario(
        "1 %/h, saturated",
        Workload(jump(1.0, 3.0, 6 * HOUR)),
        _TIGHT,
        leak=_constant(1, pool=2600),
    ),
    Scenario("1 %/h, rare 60k contexts", _LONG, _LARGE, leak=_constant(1, pool=16384)),
    Scenario(
        "0.5 %/h, light, gaps",
        Workload(steady(0.15)),
        incidents=Incidents(gaps=((14 * HOUR, 17 * HOUR),)),
        leak=_constant(0.5),
    ),
]
