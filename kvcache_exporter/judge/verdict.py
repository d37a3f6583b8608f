"""Indications, the memory of a leak and the last verdict give the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields

from kvcache_exporter.audits.answers import nothing_lost
from kvcache_exporter.history import History
from kvcache_exporter.judge.leak import Leak
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Finding, Indication, Judgement, State

IDLE_STATES = frozenset({State.HELD_IDLE, State.LEAK_SUSPECT, State.LEAK})
"""States of an engine that leaks or may leak; an established leak outranks the other two."""
NUMBERS = frozenset(field.name for field in fields(Judgement))
PER_EVENT = "blocks_lost_per_"
MOST_CONFIDENT = 0.99
"""Of what is inferred; only what is proven is certain."""


def decide(
    indications: Sequence[Indication],
    leak: Leak,
    previous: Judgement | None,
    history: History,
    settings: JudgeSettings,
) -> Judgement:
    """The one state of the engine, what speaks for it, and the numbers that go with it."""
    votes: dict[State, list[str]] = {}
    for indication in indications:
        if indication.alarming and indication.state is not None:
            votes.setdefault(indication.state, []).append(indication.because)
    if leak.active:
        votes = {state: texts for state, texts in votes.items() if state not in IDLE_STATES}
        votes[State.LEAK] = [leak.because]
    else:
        votes.pop(State.LEAK, None)
        if nothing_lost(history.audit):
            votes.pop(State.LEAK_SUSPECT, None)
    state = _state(votes, history)
    numbers = _numbers(indications)
    if leak.active and not (
        any(i.exact for i in indications) or _has_recent_floor(history, settings)
    ):
        numbers["orphaned_blocks"] = round(leak.blocks)
    return Judgement(
        state=state,
        since=previous.since if previous and previous.state is state else history.time,
        confidence=_confidence(state, leak, indications, history),
        because=_because(state, votes, leak),
        leak_active=leak.active,
        indications=tuple(indications),
        findings=_findings(indications, leak, previous, history, settings),
        **numbers,  # type: ignore[arg-type]
    )


def _has_recent_floor(history: History, settings: JudgeSettings) -> bool:
    newest = history.idle.last()
    return newest is not None and history.time - newest.end <= settings.floor_seconds


def _because(state: State, votes: Mapping[State, Sequence[str]], leak: Leak) -> tuple[str, ...]:
    """Reasons of the state; a leak that another state covers is said all the same."""
    covered = leak.active and state is not State.LEAK
    return (*votes.get(state, ()), *([f"also a leak: {leak.because}"] if covered else ()))


def _state(votes: Mapping[State, object], history: History) -> State:
    if history.reading is None:
        return State.NO_DATA
    for state in State:
        if state in votes:
            return state
    clean = not math.isinf(history.idle.clean_time) or nothing_lost(history.audit)
    return State.OK if clean or history.blocks.total or history.hours.total else State.UNKNOWN


def _numbers(indications: Sequence[Indication]) -> dict[str, object]:
    """What indications hand to the judgement; of several for one field the last exact one holds."""
    numbers: dict[str, object] = {}
    for indication in sorted(indications, key=lambda one: one.exact):
        for name, value in indication.details.items():
            if name in NUMBERS:
                numbers[name] = value
            elif name.startswith(PER_EVENT):
                numbers["blocks_lost_per_event"] = ((name.removeprefix(PER_EVENT), value),)
    return numbers


def _confidence(
    state: State, leak: Leak, indications: Sequence[Indication], history: History
) -> float:
    """Certain where something is read or proven, less where it is inferred from few blocks."""
    if state is State.UNKNOWN:
        return 0.0
    if state is State.OK:
        blocks = history.blocks.total
        seen = history.time - history.idle.clean_time < 3600.0 or nothing_lost(history.audit)
        return 1.0 if seen else min(MOST_CONFIDENT, blocks / (blocks + 4.0))
    if state is State.LEAK_SUSPECT:
        return 0.5
    if state is State.LEAK and not leak.proven:
        return MOST_CONFIDENT
    return 1.0


def _findings(
    indications: Sequence[Indication],
    leak: Leak,
    previous: Judgement | None,
    history: History,
    settings: JudgeSettings,
) -> tuple[Finding, ...]:
    known = {f.kind: f.start for f in previous.findings} if previous else {}
    found = [
        Finding(i.finding, known.get(i.finding, history.time), i.because)
        for i in indications
        if i.finding is not None and i.alarming
    ]
    if history.cuts.total:
        found += _cut_findings(leak, history, settings)
    return tuple(found)


def _cut_findings(leak: Leak, history: History, settings: JudgeSettings) -> list[Finding]:
    """Restart and change of capacity, for an hour; for a day when a leak ended with it."""
    cut = history.cuts.last("time")
    age, found = history.time - cut, []
    leaked = leak.leaked_before >= cut and age < settings.memory_seconds
    if not leaked and age >= settings.restart_seconds:
        return []
    if history.cuts.last("pool_changed"):
        found.append(Finding("capacity_change", cut, "the pool has another size than before"))
    if history.cuts.last("restart") or history.cuts.last("counter_fell"):
        text = "a new process answers, counters began anew"
        if leaked:
            text += f"; the one before had leaked about {leak.blocks_before:.0f} blocks"
        found.append(Finding("restart", cut, text))
    return found
