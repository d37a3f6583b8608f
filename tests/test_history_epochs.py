"""When a new process answers: what is remembered of the one before says nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from tests.judging import HOUR, Engine


def epochs(**changed: float) -> int:
    """Epochs begun when counters of an engine jump to these shares of themselves, start unknown."""
    engine = Engine(process_start_time_seconds=None)
    history = History(JudgeSettings())
    seen = list(engine.busy(HOUR))
    for one in seen:
        history.add(one)
    before = history.epoch
    reading = seen[-1].reading
    assert reading is not None
    grown = {name: share * getattr(reading, name) for name, share in changed.items()}
    history.add(replace(seen[-1], time=seen[-1].time + 15, reading=replace(reading, **grown)))  # type: ignore[arg-type]
    return history.epoch - before


@pytest.mark.parametrize(
    "changed",
    [
        {"generation_tokens": 0.0, "prompt_tokens": 0.0, "finished_requests": 0.0},
        {"generation_tokens": 0.01},
        {"generation_tokens": 0.7, "prompt_tokens": 0.6, "finished_requests": 0.9},
    ],
)
def test_counters_that_begin_anew_are_a_new_process(changed: dict[str, float]) -> None:
    assert epochs(**changed) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"generation_tokens": 0.97},
        {"generation_tokens": 0.97, "prompt_tokens": 1.01, "finished_requests": 1.01},
        {"generation_tokens": 1.02, "prompt_tokens": 1.01, "finished_requests": 1.01},
    ],
)
def test_one_counter_that_takes_something_back_is_the_same_process(
    changed: dict[str, float],
) -> None:
    assert epochs(**changed) == 0
