"""``python -m benchmarks.detection.tradeoff``: what another threshold would buy, and cost.

Development draws, the trend's score at several values, everything else as shipped; for engines at
large and for prefill engines, each with the score that is theirs. Writes the tables in
docs/detection.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.detection import report
from benchmarks.detection.dev import random_jobs
from benchmarks.detection.feed import observations
from benchmarks.detection.random_suite import DEVELOPMENT_SEEDS
from benchmarks.detection.runner import PROCESSES, Job, trace_of, with_progress
from benchmarks.detection.score import Outcome, outcome, summarise
from kvcache_exporter.judge import Judge
from kvcache_exporter.judge_settings import JudgeSettings

PAGE = Path(__file__).parents[2] / "docs" / "detection.md"
SETTINGS = {"": "trend_score", "prefill": "trend_hold_score"}
"""By kind of draw, the setting that decides."""
OFFSETS = (-1.0, -0.5, 0.0, 0.5, 1.0)


def scores(kind: str) -> list[float]:
    """The shipped score in the middle."""
    shipped: float = getattr(JudgeSettings(), SETTINGS[kind])
    return [shipped + offset for offset in OFFSETS]


def judged(job: Job, kind: str) -> dict[float, Outcome]:
    """What the judge makes of one trace at each score."""
    trace, found = trace_of(job), {}
    for score in scores(kind):
        judge = Judge(replace(JudgeSettings(), **{SETTINGS[kind]: score}))  # type: ignore[arg-type]
        on = [judge.observe(seen).leak_active for seen in observations(trace)]
        found[score] = outcome(trace, (trace["time"], np.array(on, dtype=np.bool_)))
    return found


def table(outcomes: Mapping[float, Sequence[Outcome]], shipped: float) -> str:
    """One line a score; the shipped one in bold."""
    rows = []
    for score, some in outcomes.items():
        row = summarise(some)
        cells = [
            f"{score:.1f}",
            f"{row.found}/{row.leaky}",
            f"{row.delay(0.5):.1f}",
            f"{row.delay(0.95):.1f}",
            f"{row.false_alarms} in {row.healthy_days:.0f} d",
        ]
        rows.append([f"**{cell}**" for cell in cells] if score == shipped else cells)
    header = ("score", "found", "median delay, h", "p95 delay, h", "false alarms")
    return report.markdown(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=60, help="of each kind, half leaking")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    args = parser.parse_args()
    with ProcessPoolExecutor(args.processes) as pool:
        made = {f"{kind} trade-off".strip(): _run(pool, kind, args.traces) for kind in SETTINGS}
    report.insert(PAGE, made)


def _run(pool: ProcessPoolExecutor, kind: str, traces: int) -> str:
    jobs = random_jobs(DEVELOPMENT_SEEDS, 0, traces, kind)
    done = list(with_progress(pool.map(partial(judged, kind=kind), jobs), len(jobs)))
    outcomes = {score: [one[score] for one in done] for score in scores(kind)}
    return table(outcomes, getattr(JudgeSettings(), SETTINGS[kind]))


if __name__ == "__main__":
    main()
