"""Indications and the last verdict give the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Finding, Indication, Judgement, State

LEAKING = (State.LEAK, State.LEAK_SUSPECT, State.HELD_IDLE)
NUMBERS = frozenset(field.name for field in fields(Judgement))


@dataclass(frozen=True, slots=True)
class Moment:
    """What the history alone decides: is there a reading, and enough to judge?"""

    time: float
    has_reading: bool
    has_history: bool


def decide(
    indications: Sequence[Indication],
    previous: Judgement | None,
    moment: Moment,
    settings: JudgeSettings,
) -> Judgement:
    """The one state of the engine, what speaks for it, and the numbers that go with it."""
    votes = [i for i in indications if i.alarming and i.state is not None]
    leak = any(i.state is State.LEAK for i in votes)
    state = _state(votes, leak, moment)
    because = tuple(i.because for i in votes if i.state is state)
    since = previous.since if previous and previous.state is state else moment.time
    numbers = {k: v for i in indications for k, v in i.details.items() if k in NUMBERS}
    return Judgement(
        state=state,
        since=since,
        confidence=1.0,
        because=because,
        leak_active=leak,
        indications=tuple(indications),
        findings=_findings(indications, previous, moment),
        **numbers,  # type: ignore[arg-type]
    )


def _state(votes: Sequence[Indication], leak: bool, moment: Moment) -> State:
    if not moment.has_reading:
        return State.NO_DATA
    voted = {i.state for i in votes}
    for state in State:
        if state in voted and not (leak and state in (State.HELD_IDLE, State.LEAK_SUSPECT)):
            return state
    return State.OK if moment.has_history else State.UNKNOWN


def _findings(
    indications: Sequence[Indication], previous: Judgement | None, moment: Moment
) -> tuple[Finding, ...]:
    known = {f.kind: f.start for f in previous.findings} if previous else {}
    return tuple(
        Finding(i.finding, known.get(i.finding, moment.time), i.because)
        for i in indications
        if i.finding is not None and i.alarming
    )
