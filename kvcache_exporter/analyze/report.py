"""What a replay found, as JSON (the contract of ``analyze --json``) and as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kvcache_exporter.model import EngineReading, Finding, Judgement, Problem, State

FATAL = frozenset({State.LEAK, State.STALLED})
WARNING = frozenset(
    {
        State.UNTRUSTED,
        State.STALE,
        State.PREEMPTION_STORM,
        State.SATURATED,
        State.HELD_IDLE,
        State.LEAK_SUSPECT,
    }
)
BLIND = frozenset({State.UNKNOWN, State.NO_DATA, State.UNTRUSTED})
NEUTRAL_FINDINGS = frozenset({"restart", "capacity_change"})


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time in one state; ``because`` is what spoke for it last."""

    start: float
    end: float
    state: State
    because: tuple[str, ...]
    leak_active: bool = False
    """A leak is established, whichever state covers it."""


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One engine from its first observation to its last."""

    target: str
    engine: str
    timeline: tuple[Segment, ...]
    findings: tuple[Finding, ...]
    judgement: Judgement
    reading: EngineReading | None
    """The last successful one."""
    time: float
    leaked: bool
    """A leak was established at some time, under whatever state."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a replay found."""

    engines: tuple[EngineReport, ...]
    problems: tuple[Problem, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        """0 clean, 1 warning state seen, 2 leak or stall seen, 3 cannot tell."""
        states = {segment.state for one in self.engines for segment in one.timeline}
        if states & FATAL or any(one.leaked for one in self.engines):
            return 2
        if not states - BLIND:
            return 3
        kinds = {finding.kind for one in self.engines for finding in one.findings}
        return 1 if states & WARNING or kinds - NEUTRAL_FINDINGS else 0


def to_json(report: Report) -> dict[str, Any]:
    """Return the object that ``--json`` prints; None becomes null."""
    return {
        "engines": [_engine(one) for one in report.engines],
        "problems": [{"code": p.code, "text": p.text} for p in report.problems],
    }


def _engine(one: EngineReport) -> dict[str, Any]:
    return {
        "target": one.target,
        "engine": one.engine,
        "model_name": one.reading.model_name if one.reading else None,
        "timeline": [
            {
                "start": s.start,
                "end": s.end,
                "state": str(s.state),
                "because": list(s.because),
                "leak_active": s.leak_active,
            }
            for s in one.timeline
        ],
        "findings": [
            {"kind": f.kind, "start": f.start, "end": f.end, "because": f.because}
            for f in one.findings
        ],
        "final": _final(one),
    }


def _final(one: EngineReport) -> Mapping[str, Any]:
    now, reading = one.judgement, one.reading
    full = now.exhaustion_time
    return {
        "state": str(now.state),
        "confidence": now.confidence,
        "orphaned_blocks": now.orphaned_blocks,
        "orphaned_blocks_low": now.orphaned_blocks_low,
        "idle_floor_blocks": now.idle_floor_blocks,
        "free_block_slope_per_hour": _hourly(now.free_slope_per_second),
        "free_block_slope_low": _hourly(now.free_slope_low_per_second),
        "free_block_slope_high": _hourly(now.free_slope_high_per_second),
        "seconds_to_exhaustion": None if full is None else max(0.0, full - one.time),
        "hit_ratio": now.hit_ratio,
        "hit_ratio_baseline": now.hit_ratio_baseline,
        "drift": now.hit_ratio_drift,
        "preemptions_per_completion": now.preemptions_per_completion,
        "pool_blocks": reading.pool_blocks if reading else None,
        "block_size_tokens": reading.block_size_tokens if reading else None,
        "leak_active": now.leak_active,
        "blocks_lost_per_event": dict(now.blocks_lost_per_event),
    }


def _hourly(per_second: float | None) -> float | None:
    return None if per_second is None else per_second * 3600.0


def to_text(report: Report) -> str:
    """Write a page for people: each engine's story, oldest first, and where it ended."""
    lines = [line for one in report.engines for line in _story(one)]
    lines += [f"problem {p.code}: {p.text}" for p in report.problems]
    return "\n".join([*lines, _conclusion(report)])


def _story(one: EngineReport) -> Iterator[str]:
    model = f" ({one.reading.model_name})" if one.reading and one.reading.model_name else ""
    yield f"{one.target} engine {one.engine}{model}"
    for segment in one.timeline:
        yield f"  {moment(segment.start)}  {_length(segment):>8}  {segment.state}"
        yield from (f"      {text}" for text in segment.because)
    for finding in one.findings:
        end = moment(finding.end) if finding.end is not None else "now"
        yield f"  {moment(finding.start)} to {end}: {finding.kind}: {finding.because}"
    yield from (f"  {text}" for text in _numbers(_final(one)))
    yield ""


def _numbers(final: Mapping[str, Any]) -> Sequence[str]:
    known = {k: v for k, v in final.items() if v not in (None, {}) and k != "state"}
    width = max(map(len, known), default=0)
    return [f"{key:{width}}  {_show(value)}" for key, value in known.items()]


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _conclusion(report: Report) -> str:
    words = {
        0: "clean: nothing but load",
        1: "a warning state was seen",
        2: "a leak or a stall was seen",
        3: "cannot tell: too little, or nothing that can be trusted",
    }
    return words[report.exit_code]


def moment(time: float) -> str:
    """Show a wall-clock time, or hours into the input where times are relative."""
    if time > 1e8:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")
    hours, rest = divmod(int(time), 3600)
    return f"{hours:d}:{rest // 60:02d}:{rest % 60:02d}"


def _length(segment: Segment) -> str:
    seconds = segment.end - segment.start
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
