"""``python -m benchmarks.detection.dev``: one line a trace, for work on the judge.

Uses development seeds only, so that the held-out ones stay unseen.
"""

from __future__ import annotations

import argparse

from benchmarks.detection.random_suite import DEVELOPMENT_SEEDS
from benchmarks.detection.runner import PROCESSES, Job, score_jobs
from benchmarks.detection.score import Outcome, Summary, summarise
from benchmarks.detection.suites import named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--detectors", default="ours", help="comma-separated files of detectors/")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each named scenario")
    parser.add_argument("--random", type=int, default=0, help="random traces instead of named ones")
    parser.add_argument("--kind", default="", help="which random suite: nothing, or prefill")
    parser.add_argument("--skip", type=int, default=0, help="random traces to skip")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    args = parser.parse_args()
    jobs = random_jobs(DEVELOPMENT_SEEDS, args.skip, args.random, args.kind) or [
        (name, seed) for name in named() if args.only in name for seed in range(args.seeds)
    ]
    detectors = args.detectors.split(",")
    outcomes = score_jobs(jobs, detectors, args.processes)
    for key in detectors:
        for job, one in zip(jobs, outcomes[key], strict=True):
            print(f"{key:12.12} {job[0]:40.40} {job[1]:>6} {_tell(one)}")
    for key in detectors:
        print(f"{key:24.24} {tell_summary(summarise(outcomes[key]))}")


def random_jobs(seeds: range, skip: int, count: int, kind: str = "") -> list[Job]:
    """Alternating healthy and leaking traces, of the random suite of that *kind*."""
    names = (f"{kind} healthy".strip(), f"{kind} leaking".strip())
    return [(names[seed % 2], seed) for seed in seeds[skip : skip + count]]


def _tell(one: Outcome) -> str:
    early = f"{one.false_alarms} false" if one.false_alarms else ""
    if not one.leaky:
        return early or "clean"
    found = "MISSED" if one.delay_hours is None else f"found after {one.delay_hours:.2f} h"
    return f"{found} {early}"


def tell_summary(row: Summary) -> str:
    """One line with every figure."""
    return (
        f"precision {row.precision:.3f} recall {row.found}/{row.leaky} = {row.recall:.3f} "
        f"median {row.delay(0.5):.2f} h p95 {row.delay(0.95):.1f} h "
        f"false {row.false_alarms} in {row.healthy_days:.0f} d = {row.false_alarms_per_day:.4f} "
        f"(< {row.false_alarms_bound:.4f}) {row.microseconds_per_scrape:.1f} us/scrape"
    )


if __name__ == "__main__":
    main()
