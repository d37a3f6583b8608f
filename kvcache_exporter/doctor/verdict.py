"""What does the judge say so far, and how much history does it still need?"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.doctor import Answer, Evidence, Level
from kvcache_exporter.model import EngineStatus, State

RANK = 90

_LEVELS = {
    State.OK: Level.FINE,
    State.PAUSED: Level.FINE,
    State.UNKNOWN: Level.FINE,
    State.NO_DATA: Level.UNKNOWN,
    State.UNTRUSTED: Level.PROBLEM,
    State.LEAK: Level.PROBLEM,
    State.STALLED: Level.PROBLEM,
}
"""States not named here are warnings."""


def examine(evidence: Evidence) -> Iterable[Answer]:
    """Give the verdict of each engine."""
    for _, status in evidence.statuses():
        question = f"verdict on engine {status.engine}"
        state = status.judgement.state
        level = _LEVELS.get(state, Level.WARNING)
        yield Answer(question, level, _text(status), _next(state, evidence.seconds))


def _text(status: EngineStatus) -> str:
    because = "; ".join(status.judgement.because)
    return f"{status.judgement.state}" + (f": {because}" if because else "")


def _next(state: State, seconds: float) -> str:
    if state in (State.UNKNOWN, State.OK):
        return (
            f"{seconds:.0f} s seen; a leak shows at idle moments or within hours: keep "
            "`kvcache-exporter run` going, or look back with `analyze --prometheus`"
        )
    return "record it before you restart: kvcache-exporter record --vllm-url ... --out FILE"
