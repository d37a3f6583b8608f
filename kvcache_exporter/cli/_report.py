"""One line when a target connects, fails, or an engine changes its state; silence otherwise."""

from __future__ import annotations

import logging

from kvcache_exporter.model import EngineStatus, Problem, Snapshot, State, TargetStatus

log = logging.getLogger("kvcache_exporter")

REPEAT_SECONDS = 300.0
"""A target that comes and goes has each of its lines no more often than this."""
_SERIOUS = frozenset({State.LEAK, State.STALLED, State.PREEMPTION_STORM, State.STALE})


class Reporter:
    """Remembers what was said, so that nothing is said twice."""

    def __init__(self) -> None:
        self._targets: dict[str, tuple[bool, frozenset[str]]] = {}
        self._states: dict[tuple[str, str], State] = {}
        self._problems: frozenset[Problem] = frozenset()
        self._said: dict[tuple[str, str], float] = {}

    def __call__(self, snapshot: Snapshot) -> None:
        """Log what *snapshot* brings that is new."""
        for target in snapshot.targets:
            self._target(target, snapshot)
        for engine in snapshot.engines:
            self._engine(engine)
        for problem in snapshot.problems:
            if problem.code not in {known.code for known in self._problems}:
                log.warning("%s", problem.text)
        self._problems = frozenset(snapshot.problems)
        self._forget(snapshot)

    def _forget(self, snapshot: Snapshot) -> None:
        known = {status.target.name for status in snapshot.targets}
        for gone in self._targets.keys() - known:
            del self._targets[gone]
            log.info("%s: gone from discovery, its series end", gone)
        engines = {(status.target, status.engine) for status in snapshot.engines}
        self._states = {key: state for key, state in self._states.items() if key in engines}
        since = snapshot.time - REPEAT_SECONDS
        self._said = {key: time for key, time in self._said.items() if time > since}

    def _again(self, target: str, what: str, now: float) -> bool:
        """Whether this was said lately; if not, it is now."""
        return self._said.setdefault((target, what), now) != now

    def _target(self, status: TargetStatus, snapshot: Snapshot) -> None:
        name, codes = status.target.name, frozenset(problem.code for problem in status.problems)
        before = self._targets.get(name)
        self._targets[name] = (status.up, codes)
        connected = status.up and (before is None or not before[0])
        if connected and not self._again(name, "connected", snapshot.time):
            log.info("%s: connected, %s", name, _found(name, snapshot))
        new = codes if before is None else codes - before[1]
        for problem in status.problems:
            if problem.code in new and not self._again(name, problem.code, snapshot.time):
                log.warning("%s: %s", name, problem.text)

    def _engine(self, status: EngineStatus) -> None:
        key, state = (status.target, status.engine), status.judgement.state
        before = self._states.get(key)
        self._states[key] = state
        if before is None or before is state:
            return
        because = "; ".join(status.judgement.because) or "no reason given"
        level = logging.WARNING if state in _SERIOUS else logging.INFO
        log.log(level, "%s engine %s: %s (was %s): %s", *key, state, before, because)


def _found(target: str, snapshot: Snapshot) -> str:
    engines = [engine for engine in snapshot.engines if engine.target == target]
    models = {e.reading.model_name for e in engines if e.reading and e.reading.model_name}
    version = next((engine.vllm_version for engine in engines if engine.vllm_version), None)
    blocks = [e.reading.pool_blocks for e in engines if e.reading]
    sizes = ", ".join("unknown" if size is None else f"{size:,}" for size in blocks)
    return (
        f"vLLM {version or '(version unknown)'}, {len(engines)} engine(s), "
        f"model {', '.join(sorted(models)) or 'unknown'}, pool {sizes} blocks"
    )
