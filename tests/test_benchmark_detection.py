"""The detection benchmark itself: its truth, its seeds and its scores."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.detection import hit_ratio, random_suite
from benchmarks.detection.detectors import all_detectors
from benchmarks.detection.feed import observations
from benchmarks.detection.leaks import Constant, Step
from benchmarks.detection.regime import regime
from benchmarks.detection.scenario import COLUMNS, Engine, Incidents, Restart, Scenario, Trace
from benchmarks.detection.score import episodes, outcome, poisson_upper, summarise
from benchmarks.detection.simulate import simulate
from benchmarks.detection.suites import named
from benchmarks.detection.workload import HOUR, Workload, diurnal, steady

LIGHT = Workload(steady(0.1))


def short(**changes: object) -> Scenario:
    given: dict[str, object] = {"name": "short", "workload": LIGHT, "seconds": 4 * HOUR}
    return Scenario(**(given | changes))  # type: ignore[arg-type]


def test_every_scenario_of_the_named_suite_can_be_told_by_name() -> None:
    suite = named()
    assert sum(one.leak is None for one in suite.values()) >= 30
    assert sum(one.leak is not None for one in suite.values()) >= 38
    assert all(name == one.name for name, one in suite.items())


def test_held_out_seeds_are_used_for_nothing_else() -> None:
    ranges = [
        random_suite.DEVELOPMENT_SEEDS,
        random_suite.HELD_OUT_SEEDS,
        random_suite.PAGE_PATH_SEEDS,
    ]
    assert len(set().union(*ranges[:2])) == sum(map(len, ranges[:2]))
    assert ranges[1].stop <= ranges[2].start
    assert not set(hit_ratio.DEVELOPMENT_SEEDS) & set(hit_ratio.HELD_OUT_SEEDS)


def test_a_scenario_and_a_seed_always_give_the_same_trace() -> None:
    one, two = (simulate(random_suite.random_scenario(1001, True), 7) for _ in range(2))
    assert np.array_equal(one.rows, two.rows, equal_nan=True)


@pytest.mark.parametrize("leak", [None, Constant(start=HOUR, rate=60), Step(start=HOUR, blocks=33)])
def test_an_idle_engine_uses_exactly_what_it_lost(leak: object) -> None:
    trace = simulate(short(leak=leak), 3)
    idle = (trace["running"] == 0) & (trace["waiting"] == 0)
    assert idle.any()
    assert np.array_equal(trace["used"][idle], trace["lost"][idle])


def test_blocks_never_exceed_the_pool_and_counters_never_fall() -> None:
    trace = simulate(short(workload=Workload(steady(3.0)), engine=Engine(pool_blocks=900)), 4)
    assert trace["used"].max() <= 900
    assert trace["preemptions"].max() > 0
    for name in COLUMNS[COLUMNS.index("prompt_tokens") : COLUMNS.index("start_time")]:
        assert (np.diff(trace[name]) >= 0).all(), name


def test_a_restart_frees_what_was_lost_and_announces_itself() -> None:
    incidents = Incidents(restarts=(Restart(2 * HOUR),))
    trace = simulate(short(leak=Constant(start=0, rate=200), incidents=incidents), 5)
    before, after = trace["time"] < 2 * HOUR, trace["time"] > 2 * HOUR + 130
    assert trace["lost"][before].max() > trace["lost"][after].min()
    assert len(set(trace["start_time"])) == 2
    assert (trace["up"] == 0).any()


def test_a_hang_freezes_every_gauge_and_counter() -> None:
    trace = simulate(
        short(incidents=Incidents(hangs=((HOUR, 2 * HOUR),)), workload=Workload(steady(2.0))), 6
    )
    frozen = (trace["time"] > HOUR) & (trace["time"] < 2 * HOUR)
    for name in ("used", "running", "waiting", "generation_tokens", "finished_requests"):
        assert len(set(trace[name][frozen])) == 1, name
    assert len(set(trace["http_requests"][frozen])) > 1


def test_the_judge_is_shown_everything_but_the_truth() -> None:
    trace = simulate(short(leak=Constant(start=0, rate=100)), 7)
    seen = list(observations(trace))
    assert len(seen) == len(trace.rows)
    assert "lost" not in repr(seen[-1])


def _trace(lost: list[float]) -> Trace:
    rows = np.zeros((len(lost), len(COLUMNS)))
    rows[:, COLUMNS.index("time")] = np.arange(len(lost)) * 600.0
    rows[:, COLUMNS.index("pool")] = 1000
    rows[:, COLUMNS.index("lost")] = lost
    rows[:, COLUMNS.index("up")] = 1
    return Trace("made", rows, max(lost) > 0, False)


def _alarms(trace: Trace, *spans: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    on = np.zeros(len(trace.rows), dtype=np.bool_)
    for begin, end in spans:
        on[begin:end] = True
    return trace["time"], on


def test_silence_of_an_hour_ends_an_episode() -> None:
    trace = _trace([0] * 60)
    assert len(episodes(_alarms(trace, (3, 5), (8, 9)))) == 1
    assert len(episodes(_alarms(trace, (3, 5), (20, 22)))) == 2


def test_an_alarm_before_the_onset_is_false_and_finds_nothing() -> None:
    trace = _trace([0] * 30 + list(range(2, 32)))
    early = outcome(trace, _alarms(trace, (25, 60)))
    assert (early.false_alarms, early.delay_hours) == (1, None)
    late = outcome(trace, _alarms(trace, (36, 60)))
    assert (late.false_alarms, late.delay_hours) == (0, 1.0)


def test_precision_counts_healthy_traces_that_alarmed() -> None:
    sick, well = _trace([0] * 30 + list(range(2, 32))), _trace([0] * 60)
    row = summarise([outcome(sick, _alarms(sick, (40, 50))), outcome(well, _alarms(well, (1, 2)))])
    assert (row.precision, row.recall) == (0.5, 1.0)


def test_no_event_in_a_thousand_days_still_allows_three() -> None:
    assert poisson_upper(0) == pytest.approx(2.996, abs=0.01)
    assert poisson_upper(1) == pytest.approx(4.744, abs=0.01)


def test_many_events_are_bounded_as_a_normal_variable_would_be() -> None:
    events = 300
    assert poisson_upper(events) == pytest.approx(events + 1.645 * events**0.5, rel=0.02)


@pytest.mark.parametrize(
    ("load", "leak", "kind"),
    [
        (steady(2.0), Step(start=HOUR, blocks=400), "step, never idle"),
        (diurnal(0.01, 0.2), Step(start=HOUR, blocks=400), "step, idles"),
        (steady(2.0), Constant(start=HOUR, rate=160), "growing >= 1 %/h"),
        (steady(2.0), Constant(start=HOUR, rate=40), "growing 0.25 to 1 %/h"),
    ],
)
def test_a_leak_is_sorted_by_its_truth(load: object, leak: object, kind: str) -> None:
    slow = Engine(tokens_per_second=25.0)
    made = short(workload=Workload(load), leak=leak, engine=slow, seconds=9 * HOUR)  # type: ignore[arg-type]
    assert regime(simulate(made, 8)) == kind


def test_every_detector_answers_on_any_trace() -> None:
    trace = simulate(short(seconds=30 * HOUR), 9)
    for one in all_detectors().values():
        times, on = one.alarms(trace)
        assert len(times) == len(on), one.name
