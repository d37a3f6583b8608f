"""One target from scrape to verdict: what has to be remembered between two of its pages.

The same code serves the running exporter, ``explain``, replays and tests; it does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kvcache_exporter.audits.answers import mute, of_engine
from kvcache_exporter.engines import vllm
from kvcache_exporter.history.growth import own_bytes
from kvcache_exporter.hosts.merge import Assignment
from kvcache_exporter.judge import Judge
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import (
    Audit,
    EngineReading,
    EngineStatus,
    GpuReading,
    Judgement,
    Observation,
    Problem,
    Scrape,
    Target,
    TargetReading,
    TargetStatus,
)
from kvcache_exporter.pool_size.kv_model import with_pool_bytes
from kvcache_exporter.samples import Parser
from kvcache_exporter.trace import Point, Trace

FORGET_SECONDS = 3600.0
"""An engine that is gone from its page this long is dropped with all that is known of it."""
MAX_ENGINES = 128
"""Twice what one page may hold, so that a page whose labels churn cannot fill our memory."""


class Follower:
    """Follows one target; ``read`` then ``judge`` once for each of its scrapes."""

    def __init__(self, target: Target, settings: JudgeSettings) -> None:
        self.target = target
        self.version: str | None = None
        self.version_asked = False
        self.audits: tuple[Audit, ...] = ()
        """What its audits that listen on TCP said last."""
        self._settings = settings
        self._process_start: float | None = None
        self._parser = Parser(vllm.NAMES, vllm.PLAIN)
        self._memory = vllm.Memory()
        self._judges: dict[str, Judge] = {}
        self._traces: dict[str, Trace] = {}
        self._seen: dict[str, float] = {}
        self._gpus: dict[str, tuple[str, ...]] = {}
        self._last_success: float | None = None
        self._failures: Counter[str] = Counter()

    def read(self, scrape: Scrape) -> TargetReading:
        """Turn a scrape into readings; a failed one, or a page without vLLM, has no engines."""
        if scrape.body is None:
            return self._failed(scrape.problem or Problem("failed", "no answer and no reason"))
        samples = self._parser.parse(scrape.body)
        if isinstance(samples, Problem):
            return self._failed(samples)
        blocks = self.target.num_gpu_blocks
        reading, self._memory = vllm.read(samples, self._memory, blocks)
        if not reading.engines:
            return self._failed(vllm.absence(scrape.body))
        self._last_success = scrape.time
        started = reading.engines[0].process_start_time_seconds
        if started != self._process_start:  # another process may be another version
            self._process_start, self.version, self.version_asked = started, None, False
        engines = tuple(with_pool_bytes(one, self.target.model) for one in reading.engines)
        return replace(reading, engines=engines, vllm_version=self.version)

    def judge(
        self,
        scrape: Scrape,
        reading: TargetReading,
        assignment: Assignment | None = None,
        audits: Sequence[Audit] = (),
    ) -> tuple[TargetStatus, tuple[EngineStatus, ...]]:
        """Judge every engine known of this target at the time of *scrape*."""
        assignment = assignment or Assignment()
        readings = {engine.engine: engine for engine in reading.engines}
        self._remember(readings, scrape.time)
        if readings:
            self._gpus = {e: tuple(g.uuid for g in gpus) for e, gpus in assignment.gpus.items()}
        engines = tuple(
            self._status(
                engine,
                readings.get(engine),
                scrape.time,
                reading,
                assignment,
                of_engine(audits, engine, len(self._judges)),
            )
            for engine in self._judges
        )
        problems = dict.fromkeys(
            (*reading.problems, *(p for one in reading.engines for p in one.problems))
        )
        if assignment.problem is not None:
            problems[assignment.problem] = None
        problems |= dict.fromkeys(mute(audits))
        problems |= dict.fromkeys(p for one in engines for p in _judged_problems(one))
        status = TargetStatus(
            target=self.target,
            up=bool(reading.engines),
            last_success_time=self._last_success,
            duration_seconds=scrape.duration_seconds,
            problems=tuple(problems),
            failures=tuple(sorted(self._failures.items())),
        )
        return status, engines

    @property
    def engines(self) -> tuple[str, ...]:
        """Engines known of this target."""
        return tuple(self._judges)

    def last_gpus(self, gpus: Sequence[GpuReading]) -> Assignment:
        """Assign the GPUs that each engine had when it last answered."""
        had = self._gpus.items()
        return Assignment(
            {engine: tuple(g for g in gpus if g.uuid in uuids) for engine, uuids in had}, "memory"
        )

    @property
    def judges(self) -> Mapping[str, Judge]:
        """Their judges, for the checkpoint."""
        return self._judges

    def restore(self, judges: Mapping[str, Judge], now: float) -> None:
        """Take over judges from a checkpoint; they go on under this target's settings."""
        for judge in judges.values():
            judge.settings = judge.history.settings = self._engine_settings()
        self._judges.update(judges)
        self._seen.update(dict.fromkeys(judges, now))

    def _failed(self, problem: Problem) -> TargetReading:
        self._failures[problem.code] += 1
        return TargetReading((), (problem,))

    def _remember(self, readings: Mapping[str, EngineReading], now: float) -> None:
        for engine in readings:
            self._seen[engine] = now
            if engine not in self._judges:
                self._judges[engine] = Judge(self._engine_settings())
        if readings:  # while the whole target is silent, nobody is forgotten
            self._forget(now)

    def _forget(self, now: float) -> None:
        newest_first = sorted(self._seen, key=lambda engine: -self._seen[engine])
        for position, engine in enumerate(newest_first):
            if position >= MAX_ENGINES or now - self._seen[engine] > FORGET_SECONDS:
                del self._judges[engine], self._seen[engine]
                self._traces.pop(engine, None)

    def _engine_settings(self) -> JudgeSettings:
        if self.target.hold_seconds is None:
            return self._settings
        return replace(self._settings, hold_seconds=self.target.hold_seconds)

    def _status(
        self,
        engine: str,
        reading: EngineReading | None,
        time: float,
        page: TargetReading,
        assignment: Assignment,
        audit: Audit | None,
    ) -> EngineStatus:
        gpus = assignment.gpus.get(engine, ())
        name, problems = self.target.name, page.problems
        observation = Observation(time, name, engine, reading, gpus, problems, audit)
        judgement = self._judges[engine].observe(observation)
        trace = self._traces.get(engine, Trace()).add(_point(observation, judgement))
        self._traces[engine] = trace
        return EngineStatus(
            target=self.target.name,
            engine=engine,
            labels=self.target.labels,
            reading=reading,
            judgement=judgement,
            gpu_uuids=tuple(gpu.uuid for gpu in gpus),
            gpu_bytes=own_bytes(gpus) if assignment.by == "processes" else (),
            vllm_version=self.version,
            trace=trace,
            hold_seconds=self._judges[engine].history.hold_seconds,
            audit=audit,
        )


def _judged_problems(status: EngineStatus) -> Iterator[Problem]:
    """Yield what the judge finds wrong with a target rather than with its cache."""
    for one in status.judgement.indications:
        if one.alarming and one.problem is not None:
            yield Problem(one.problem, one.because)


def _point(observation: Observation, judgement: Judgement) -> Point:
    reading, sizes = observation.reading, [gpu.used_bytes for gpu in observation.gpus]
    known = [size for size in sizes if size is not None]
    return Point(
        time=observation.time,
        used_blocks=None if reading is None else reading.used_blocks,
        idle_floor_blocks=judgement.idle_floor_blocks,
        orphaned_blocks=judgement.orphaned_blocks,
        gpu_used_bytes=sum(known) if known and len(known) == len(sizes) else None,
    )
