"""What operators and platforms do to an engine: half of it healthy, half of it leaking too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.detection.leaks import Constant, PerFinish
from benchmarks.detection.scenario import Engine, Hold, Incidents, Restart, Scenario
from benchmarks.detection.scenarios import BUSY, HOUR, percent
from benchmarks.detection.workload import (
    Workload,
    diurnal,
    gamma_bursts,
    jump,
    prefill,
    steady,
    walk,
)

_SLEEPS = ((6 * HOUR, 7 * HOUR), (20 * HOUR, 26 * HOUR), (40 * HOUR, 40.3 * HOUR))
_POD = Restart(18 * HOUR, 0.0, 7900)
_SILENT = tuple(Restart(t * HOUR, 0.0, announced=False) for t in (10, 31))
_HYBRID = replace(BUSY, blocks_per_token=0.025, request_blocks=6.0, pool_blocks=4096)
_RANK = replace(BUSY, pool_blocks=5000)

_HEALTHY = [
    Scenario("sleep and wake", Workload(diurnal(0.1, 1.5)), BUSY, Incidents(sleeps=_SLEEPS)),
    Scenario(
        "prefix cache reset every 6 h",
        Workload(steady(1.5), sharing=0.9),
        BUSY,
        Incidents(cache_resets=tuple(6 * HOUR * i for i in range(1, 8))),
    ),
    Scenario(
        "paused for weight updates",
        Workload(steady(1.0)),
        BUSY,
        Incidents(pauses=tuple((i * HOUR, i * HOUR + 900) for i in range(5, 46, 5))),
        tags=frozenset({"stalls"}),
    ),
    Scenario("data parallel, rank 0", Workload(walk(0.9, 0.4, seed=21)), _RANK),
    Scenario("data parallel, rank 1", Workload(walk(0.9, 0.4, seed=22)), _RANK),
    Scenario(
        "look-ahead blocks", Workload(walk(1.0, 0.5, seed=23)), replace(BUSY, request_blocks=2)
    ),
    Scenario("hybrid attention", Workload(diurnal(0.5, 2.5)), _HYBRID),
    Scenario("pod replaced", Workload(walk(1.2, 0.5, seed=24)), BUSY, Incidents(restarts=(_POD,))),
    Scenario(
        "counters reset in silence",
        Workload(diurnal(0.3, 2.0)),
        BUSY,
        Incidents(restarts=_SILENT),
    ),
    Scenario(
        "clock jumps, double deliveries",
        Workload(walk(1.2, 0.5, seed=25)),
        BUSY,
        Incidents(
            clock_jumps=((9 * HOUR, 2 * HOUR), (21 * HOUR, -1.5 * HOUR)), duplicate_share=0.05
        ),
    ),
    Scenario("gamma bursts", Workload(gamma_bursts(1.3)), BUSY),
    Scenario("violent gamma bursts", Workload(gamma_bursts(1.0, 4.0)), BUSY),
    Scenario(
        "busy prefill engine",
        prefill(steady(3.0)),
        Engine(hold=Hold(lost_share=0.01)),
    ),
    Scenario(
        "transfers start to fail for 10 h",
        prefill(diurnal(0.3, 2.5)),
        Engine(hold=Hold((0.2, 30.0), lost_share=0.1)),
    ),
    Scenario("load falls to a third", Workload(jump(2.4, 0.8, 22 * HOUR)), BUSY),
]


def _leaking() -> Iterator[Scenario]:
    for healthy in _HEALTHY:
        leak = Constant(rate=percent(0.6, healthy.engine.pool_blocks), start=11 * HOUR)
        yield replace(healthy, name=f"{healthy.name}, leaking", leak=leak)
    yield Scenario(
        "busy prefill engine, lost transfers",
        prefill(steady(3.0)),
        Engine(hold=Hold(lost_share=0.01)),
        leak=PerFinish(probability=0.001, blocks=40),
    )


SCENARIOS = [*_HEALTHY, *_leaking()]
