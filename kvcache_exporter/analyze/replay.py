"""Frames to a report: the same reading and the same judge as in the running exporter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from kvcache_exporter.analyze.frame import Frame
from kvcache_exporter.analyze.report import EngineReport, Report, Segment
from kvcache_exporter.engines import vllm
from kvcache_exporter.hosts.merge import assign_recorded
from kvcache_exporter.judge import Judge
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import (
    EngineReading,
    Finding,
    GpuReading,
    Judgement,
    Observation,
    Problem,
    State,
)

Watch = Callable[[Observation, Judgement], None]
"""Told about every step, for ``explain`` and tests."""


@dataclass(slots=True)
class _Open:
    """A segment that may still grow."""

    start: float
    end: float
    state: State
    because: tuple[str, ...]
    leak_active: bool


@dataclass(slots=True)
class _Engine:
    """One engine while the replay runs."""

    target: str
    engine: str
    judge: Judge
    segments: list[_Open] = field(default_factory=list)
    findings: dict[str, Finding] = field(default_factory=dict)
    ended: list[Finding] = field(default_factory=list)
    reading: EngineReading | None = None
    judgement: Judgement | None = None
    time: float = 0.0
    leaked: bool = False


@dataclass(slots=True)
class _Target:
    """What is remembered from page to page of one target."""

    memory: vllm.Memory = field(default_factory=vllm.Memory)
    engines: dict[str, _Engine] = field(default_factory=dict)


def replay(
    frames: Iterable[Frame],
    settings: JudgeSettings | None = None,
    configured_blocks: int | None = None,
    watch: Watch | None = None,
) -> Report:
    """Judge every engine of every target over all *frames*, which must come in order of time."""
    targets: dict[str, _Target] = {}
    problems: dict[tuple[str, str], Problem] = {}
    for frame in frames:
        target = targets.setdefault(frame.target, _Target())
        for problem in _step(frame, target, settings, configured_blocks, watch):
            problems.setdefault((frame.target, problem.code), problem)
    engines = [_finish(one) for target in targets.values() for one in target.engines.values()]
    engines.sort(key=lambda one: (one.target, len(one.engine), one.engine))
    named = [
        replace(problem, text=f"{target}: {problem.text}")
        for (target, _), problem in problems.items()
    ]
    return Report(tuple(engines), tuple(named))


def _step(
    frame: Frame,
    target: _Target,
    settings: JudgeSettings | None,
    configured_blocks: int | None,
    watch: Watch | None,
) -> Iterator[Problem]:
    readings: dict[str, EngineReading] = {}
    if isinstance(frame.samples, Problem):
        yield frame.samples
    else:
        page, target.memory = vllm.read(frame.samples, target.memory, configured_blocks)
        readings = {one.engine: one for one in page.engines}
        yield from page.problems
    names = sorted((readings.keys() or {"0"}) | target.engines.keys())
    owned = assign_recorded(names, frame.gpus, alive=bool(readings)).gpus if frame.gpus else {}
    for engine in names:
        one = target.engines.get(engine)
        if one is None:
            one = target.engines[engine] = _Engine(frame.target, engine, Judge(settings))
        reading = readings.get(engine)
        yield from reading.problems if reading else ()
        _observe(one, frame.time, reading, owned.get(engine, ()), watch)


def _observe(
    one: _Engine,
    time: float,
    reading: EngineReading | None,
    gpus: tuple[GpuReading, ...],
    watch: Watch | None,
) -> None:
    observation = Observation(time, one.target, one.engine, reading, gpus)
    judgement = one.judge.observe(observation)
    one.reading = reading or one.reading
    one.judgement, one.time = judgement, max(time, one.time)
    one.leaked |= judgement.leak_active
    _extend(one.segments, one.time, judgement)
    _collect(one, judgement)
    if watch is not None:
        watch(observation, judgement)


def _extend(segments: list[_Open], time: float, judgement: Judgement) -> None:
    """Lengthen the open segment, or close it and begin the next."""
    if segments:
        last = segments[-1]
        last.end = time
        if (last.state, last.leak_active) == (judgement.state, judgement.leak_active):
            last.because = judgement.because
            return
    now = judgement
    segments.append(_Open(time, time, now.state, now.because, now.leak_active))


def _collect(one: _Engine, judgement: Judgement) -> None:
    """End the findings that vanished; those that are there may have new numbers."""
    if not judgement.findings and not one.findings:
        return
    present = {finding.kind: finding for finding in judgement.findings}
    for kind in [kind for kind in one.findings if kind not in present]:
        ended = one.findings.pop(kind)
        one.ended.append(replace(ended, end=one.time if ended.end is None else ended.end))
    one.findings.update(present)


def _finish(one: _Engine) -> EngineReport:
    judgement = one.judge.conclude()
    one.leaked |= judgement.leak_active
    _extend(one.segments, one.time, judgement)
    _collect(one, judgement)
    findings = sorted([*one.ended, *one.findings.values()], key=lambda f: f.start)
    return EngineReport(
        target=one.target,
        engine=one.engine,
        timeline=tuple(
            Segment(s.start, s.end, s.state, s.because, s.leak_active) for s in one.segments
        ),
        findings=tuple(findings),
        judgement=judgement,
        reading=one.reading,
        time=one.time,
        leaked=one.leaked,
    )
