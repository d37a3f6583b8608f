"""Memory that settles is warm-up; memory that keeps its pace grows."""

import math

import pytest

from kvcache_exporter.history import History
from kvcache_exporter.history.growth import SLOT_SECONDS, GrowthWatch, MemoryLog, growth
from kvcache_exporter.indicators import outside_pool, unowned_memory
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import EngineReading, GpuProcess, GpuReading, Observation

MIB = 1 << 20
GIB = 1 << 30
H200_MIB = [(0, 128_402), (15, 128_560), (90, 128_650), (285, 128_744), (510, 128_842)]
H200_MIB += [(585, 128_946), (600, 129_086), (5445, 129_228)]
"""Seconds and used memory of an H200 under a 7B-shaped model, from before its first request on."""


def floors(shape, hours, every=SLOT_SECONDS):
    """Times, and a floor for each, over so many *hours*; *shape* maps hours to bytes."""
    times = [every * slot for slot in range(int(hours * 3600 / every))]
    return times, [shape(time / 3600) for time in times]


def steps(table):
    return lambda hours: [size for at, size in table if at <= hours * 3600][-1] * MIB


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("constant", lambda h: 5 * GIB),
        ("warm-up as measured on an H200", steps(H200_MIB)),
        ("warm-up of an hour and a half", lambda h: 5 * GIB + min(h, 1.5) * 4 * GIB),
        ("one step late, as a second model or adapter", lambda h: 5 * GIB + (h > 9) * 3 * GIB),
        ("ever more seldom larger batches", lambda h: 5 * GIB + GIB * math.log1p(20 * h)),
        ("saw-tooth", lambda h: 5 * GIB + (h % 1.0) * 2 * GIB),
        ("falling", lambda h: 50 * GIB - h * GIB),
        ("slow enough to be nothing", lambda h: 5 * GIB + h * MIB),
    ],
)
def test_what_settles_is_not_growth_after_a_day(name, shape):
    assert growth(*floors(shape, 24.0), 256 * MIB) is None


@pytest.mark.parametrize(
    ("name", "shape", "hours"),
    [
        ("5.0 to 7.4 GB under load in four hours", lambda h: 5 * GIB + 0.6 * h * GIB, 4.0),
        ("400 MB a minute", lambda h: 6 * GIB + h * 60 * 400 * MIB, 0.5),
        ("after a day of rest", lambda h: 5 * GIB + max(0.0, h - 22.0) * 2 * GIB, 24.0),
        ("in steps of an allocator", lambda h: 5 * GIB + (h // 0.5) * 300 * MIB, 6.0),
        ("6.00 to 6.57 GiB in twelve hours", lambda h: 6 * GIB + h * 48.6 * MIB, 12.0),
        ("ever faster", lambda h: 5 * GIB + h * h * 100 * MIB, 6.0),
    ],
)
def test_what_keeps_its_pace_is_growth(name, shape, hours):
    found = growth(*floors(shape, hours), 128 * MIB)
    assert found.bytes >= 128 * MIB


def test_growth_that_stops_is_called_off():
    times, stopped = floors(lambda h: 5 * GIB + min(h, 4.0) * GIB, 12.0)
    assert growth(times[:120], stopped[:120], 256 * MIB) is not None
    assert growth(times, stopped, 256 * MIB) is None


def test_growth_is_seen_in_a_reading_each_five_minutes():
    found = growth(*floors(lambda h: (5.0 + 1.2 * h) * 1e9, 2.0, every=300.0), 400e6)
    assert found.bytes > 400e6
    assert found.seconds < 7200.0


def test_idle_hours_neither_settle_nor_grow():
    watch = GrowthWatch()
    for minute in range(600):
        watch.add(60.0 * minute, 5 * GIB, worked=False)
    assert watch.risen_bytes is None
    assert len(watch.floors) == 0


def test_memory_that_rises_in_an_idle_engine_counts():
    watch = GrowthWatch()
    for minute in range(600):
        watch.add(60.0 * minute, 5 * GIB + minute * 10 * MIB, worked=False)
    times, sizes = watch.floors.column("time"), watch.floors.column("bytes")
    assert growth(times, sizes, 256 * MIB) is not None


def test_the_rise_counts_from_the_end_of_warm_up():
    watch = GrowthWatch()
    for minute in range(200):
        watch.add(60.0 * minute, steps(H200_MIB)(minute / 60) if minute < 150 else 7 * GIB, True)
    assert watch.settled_bytes == 129_086 * MIB
    assert watch.risen_bytes == 7 * GIB - 129_086 * MIB


def observed(minute, *, used=GIB, gpu=None, tokens=None):
    gpu = gpu or GpuReading("GPU-a", "nvml", total_bytes=80 * GIB, used_bytes=int(used))
    reading = EngineReading(
        "0",
        prompt_tokens=minute if tokens is None else tokens,
        generation_tokens=0.0,
    )
    return Observation(60.0 * minute, "t", "0", reading, (gpu,))


def history_of(observations):
    history = History(JudgeSettings())
    for observation in observations:
        history.add(observation)
    return history


def test_growth_outside_the_pool_is_a_finding_with_numbers_and_the_next_step():
    history = history_of(observed(m, used=20 * GIB + m * 30 * MIB) for m in range(300))
    found = outside_pool.indicate(history, JudgeSettings())
    assert (found.alarming, found.finding) == (True, "outside_pool_growth")
    assert found.details["GPU-a"] == pytest.approx(267 * 30 * MIB, rel=0.02)
    assert "not the KV cache" in found.because


def test_a_steady_gpu_shows_its_rise_and_no_finding():
    history = history_of(observed(m, used=20 * GIB + min(m, 5) * 100 * MIB) for m in range(300))
    found = outside_pool.indicate(history, JudgeSettings())
    assert (found.alarming, found.value) == (False, 0.0)


def test_an_engine_without_gpu_says_nothing():
    history = History(JudgeSettings())
    history.add(Observation(0.0, "t", "0", EngineReading("0")))
    for indicator in (outside_pool, unowned_memory):
        assert indicator.indicate(history, JudgeSettings()) is None


def test_a_change_of_source_never_looks_like_growth():
    log = MemoryLog()
    for minute in range(60):
        source = "nvml" if minute < 40 else "dcgm"
        gpu = GpuReading("GPU-a", source, used_bytes=GIB if source == "nvml" else 9 * GIB)
        log.add(observed(minute, gpu=gpu), worked=True)
    ((key, watch),) = log.gpus.items()
    assert key[1] == "dcgm"
    assert set(watch.floors.column("bytes")) == {9.0 * GIB}


def test_on_a_shared_gpu_only_the_engines_own_processes_count():
    log = MemoryLog()
    gpu = GpuReading("GPU-a", "nvml", used_bytes=50 * GIB, processes=(GpuProcess(7, 3 * GIB),))
    log.add(observed(0, gpu=gpu), worked=True)
    log.add(observed(5, gpu=gpu), worked=True)
    (watch,) = log.gpus.values()
    assert list(watch.floors.column("bytes")) == [3.0 * GIB]


def test_a_restart_begins_a_new_warm_up():
    before = [observed(m, used=20 * GIB) for m in range(100)]
    after = [observed(m, used=30 * GIB, tokens=m - 100) for m in range(100, 110)]
    history = history_of([*before, *after])
    assert outside_pool.indicate(history, JudgeSettings()) is None


def test_memory_held_by_nobody_is_a_finding_even_while_the_engine_does_not_answer():
    held = GpuReading("GPU-a", "nvml", total_bytes=80 * GIB, unowned_bytes=67 * GIB)
    history = history_of([observed(0)])
    history.add(Observation(100.0, "t", "0", None, (held,)))
    found = unowned_memory.indicate(history, JudgeSettings())
    assert (found.alarming, found.finding, found.value) == (True, "unowned_gpu_memory", 67 * GIB)
    assert "GPU-a" in found.because


def test_the_drivers_own_memory_has_an_owner_and_unknown_is_no_finding():
    own = GpuReading("GPU-a", "nvml", total_bytes=80 * GIB, unowned_bytes=700 * MIB)
    assert not unowned_memory.indicate(history_of([observed(0, gpu=own)]), JudgeSettings()).alarming
    unknown = GpuReading("GPU-a", "nvml", total_bytes=80 * GIB)
    history = history_of([observed(0, gpu=unknown)])
    assert unowned_memory.indicate(history, JudgeSettings()) is None
