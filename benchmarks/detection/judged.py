"""What only our own judge is asked: hit-ratio drift, slope, real recordings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.detection import hit_ratio
from benchmarks.detection.feed import EPOCH, observations
from benchmarks.detection.hit_ratio import HitScenario
from benchmarks.detection.runner import Job, scenario_of, trace_of
from benchmarks.detection.score import Outcome, episodes
from benchmarks.detection.workload import HOUR
from kvcache_exporter.analyze import pages, replay
from kvcache_exporter.analyze.report import EngineReport
from kvcache_exporter.judge import Judge

RECORDINGS = Path(__file__).parents[2] / "tests" / "data" / "recordings"


def hit_ratio_outcome(job: tuple[HitScenario, int]) -> Outcome:
    """Drift alarms over a week; the first day is not scored."""
    made, seed = job
    judge, times, on = Judge(), [], []
    for seen in hit_ratio.observations(made, seed):
        times.append((seen.time - hit_ratio.EPOCH) / 86400)
        on.append(bool(judge.observe(seen).hit_ratio_drift))
    alarms = np.array(times) * 86400, np.array(on, dtype=np.bool_)
    starts = [t / 86400 for t in episodes(alarms) if t / 86400 > hit_ratio.PROBATION_DAYS]
    onset = hit_ratio.ONSET_DAYS if made.drop else hit_ratio.DAYS
    after = [start for start in starts if start >= onset]
    return Outcome(
        scenario=made.name,
        leaky=made.drop is not None,
        false_alarms=sum(start < onset for start in starts),
        healthy_days=onset - hit_ratio.PROBATION_DAYS,
        delay_hours=(after[0] - onset) * 24 if after else None,
    )


@dataclass(frozen=True, slots=True)
class SlopeError:
    """Estimated over true slope, at the hours after the onset when both exist."""

    scenario: str
    ratios: tuple[float, ...]
    covered: float
    """Share of the moments at which the true slope lies in the 95 % interval."""


def slope_error(job: Job) -> SlopeError:
    """Compare with the slope of the truth over the last six hours, from six hours after onset."""
    trace, judge = trace_of(job), Judge()
    time, lost, onset = trace["time"], trace["lost"], trace.onset or 0.0
    ratios, inside = [], []
    for i, seen in enumerate(observations(trace)):
        now = judge.observe(seen)
        at = seen.time - EPOCH
        if now.free_slope_per_second is None or at < onset + 6 * HOUR or i % 60:
            continue
        before = float(np.interp(at - 6 * HOUR, time, lost))
        true = -(float(lost[i]) - before) / (6 * HOUR)
        if true < 0:
            ratios.append(now.free_slope_per_second / true)
            low, high = now.free_slope_low_per_second, now.free_slope_high_per_second
            inside.append(low is not None and high is not None and low <= true <= high)
    return SlopeError(scenario_of(job).name, tuple(ratios), sum(inside) / max(1, len(inside)))


def recordings() -> Iterable[tuple[str, EngineReport]]:
    """Every recording of a real server, judged as ``analyze --pages`` does."""
    for path in sorted(RECORDINGS.glob("*.jsonl.gz")):
        for engine in replay(pages.frames(path)).engines:
            yield path.name.removesuffix(".jsonl.gz"), engine
