"""What every indicator keeps to, whatever an engine shows; a new file is tested by being there."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.indicators import Indicator, all_indicators
from kvcache_exporter.judge import Judge
from kvcache_exporter.model import EngineReading, Judgement, Observation

EACH = pytest.mark.parametrize("indicator", all_indicators(), ids=lambda one: one.name)
NUMBERS = [
    field.name
    for field in fields(EngineReading)
    if field.type in ("float | None", "int | None") and field.name != "block_size_tokens"
]


def judge_after(rows: list[dict[str, float | None]], step: float = 30.0) -> Judge:
    judge = Judge()
    for i, row in enumerate(rows):
        reading = EngineReading("0", **row)  # type: ignore[arg-type]
        judge.observe(Observation(1.79e9 + i * step, "t", "0", reading))
    return judge


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, float | None]]:
    """Anything from sane to absurd: missing, constant, falling and huge values."""
    names = draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=12, unique=True))
    value = st.none() | st.integers(0, 10**9).map(float) | st.floats(0, 1)
    count = draw(st.integers(1, 60))
    columns = {name: draw(st.lists(value, min_size=count, max_size=count)) for name in names}
    return [{name: columns[name][i] for name in names} for i in range(count)]


@EACH
def test_it_has_nothing_to_say_before_the_first_scrape(indicator: Indicator) -> None:
    judge = Judge()
    answer = indicator.indicate(judge.history, judge.settings)
    assert answer is None or not answer.alarming


@EACH
def test_it_says_in_its_module_what_it_is(indicator: Indicator) -> None:
    module = __import__(indicator.indicate.__module__, fromlist=["_"])
    assert module.__doc__
    assert indicator.indicate.__doc__
    assert indicator.every_seconds >= 0


@given(rows=histories())
def test_whatever_an_engine_shows_every_answer_is_a_finite_sentence(
    rows: list[dict[str, float | None]],
) -> None:
    judge = judge_after(rows)
    for indicator in all_indicators():
        answer = indicator.indicate(judge.history, judge.settings)
        if answer is None:
            continue
        assert answer.name == indicator.name
        assert answer.because.strip()
        assert answer.value is None or not math.isnan(answer.value)
        assert not answer.alarming or answer.state is not None or answer.finding or answer.details


@given(rows=histories())
def test_whatever_an_engine_shows_it_gets_exactly_one_state(
    rows: list[dict[str, float | None]],
) -> None:
    judgement = judge_after(rows).judgement
    assert isinstance(judgement, Judgement)
    assert 0.0 <= judgement.confidence <= 1.0
    assert judgement.hit_ratio is None or judgement.hit_ratio >= 0.0


@EACH
def test_asking_twice_gives_the_same_answer(indicator: Indicator) -> None:
    rows = [
        {"running": float(i % 7), "waiting": 0.0, "used_blocks": 40 * (i % 7), "pool_blocks": 900}
        for i in range(200)
    ]
    judge = judge_after(rows)
    first = indicator.indicate(judge.history, judge.settings)
    assert indicator.indicate(judge.history, judge.settings) == first
