"""``python -m benchmarks.detection``: every detector on every suite; writes docs/detection.md.

Named scenarios and development draws may be looked at while working; held-out draws are run here
and nowhere else. Traces are kept in .cache/detection, so that a second run is quick.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.detection import cost, hit_ratio, judged, page_path, picture, report
from benchmarks.detection.detectors import all_detectors
from benchmarks.detection.dev import random_jobs, tell_summary
from benchmarks.detection.hit_ratio import FAULTY, HEALTHY
from benchmarks.detection.leaks import Constant
from benchmarks.detection.random_suite import HELD_OUT_SEEDS
from benchmarks.detection.runner import PROCESSES, Job, score_jobs, with_progress
from benchmarks.detection.score import Outcome, summarise
from benchmarks.detection.suites import named

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "detection.md"
PICTURE = ROOT / "docs" / "images" / "detection.svg"
NAMED_SEED = 0
SLOPE_SCENARIOS = ("steady, busy", "diurnal, never idle", "load ramp", "load falls", "random walk")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", type=int, default=200, help="held-out traces, half leaking")
    parser.add_argument("--prefill", type=int, default=80, help="held-out prefill engines")
    parser.add_argument("--only", default="", help="named scenarios that contain this; no page")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    args = parser.parse_args()
    known = all_detectors()
    names = {key: one.name for key, one in known.items()}
    suites: dict[str, list[Job]] = {
        "named": [(name, NAMED_SEED) for name in named() if args.only in name],
        "held-out": random_jobs(HELD_OUT_SEEDS, 0, args.held_out),
        "prefill": random_jobs(HELD_OUT_SEEDS, 0, args.prefill, "prefill"),
    }
    tables, outcomes = {}, {}
    for suite, jobs in suites.items():
        print(f"{suite}: {len(jobs)} traces, {len(known)} detectors")
        outcomes[suite] = score_jobs(jobs, list(known), args.processes)
        tables[f"{suite} suite"] = report.detectors(names, outcomes[suite])
        tables[f"{suite} regimes"] = report.regimes(outcomes[suite]["ours"])
        for key, rows in outcomes[suite].items():
            print(f"  {names[key]:40} {tell_summary(summarise(rows))}")
    with ProcessPoolExecutor(args.processes) as pool:
        tables["hit ratio"] = report.hit_ratio(
            {
                "development": _hit_ratio(pool, hit_ratio.DEVELOPMENT_SEEDS[:4]),
                "held-out": _hit_ratio(pool, hit_ratio.HELD_OUT_SEEDS),
            }
        )
        tables["slopes"] = report.slopes(pool.map(judged.slope_error, _slope_jobs(args.only)))
    tables["recordings"] = report.recordings(judged.recordings())
    tables["cost"] = cost.table()
    if checked := page_path.load():  # else what its own command has written stays
        tables["page path"] = page_path.tell(checked).replace("\n", "  \n")
    if args.only:
        print("\n\n".join(f"{name}\n{table}" for name, table in tables.items()))
        return
    report.insert(PAGE, tables)
    picture.draw(PICTURE, names, outcomes["held-out"])
    print(f"wrote {PAGE} and {PICTURE}")


def _hit_ratio(pool: ProcessPoolExecutor, seeds: range) -> list[Outcome]:
    jobs = [(made, seed) for made in range(len(HEALTHY + FAULTY)) for seed in seeds]
    results = pool.map(_hit_ratio_outcome, jobs)
    return list(with_progress(results, len(jobs), "weeks of hit ratio"))


def _hit_ratio_outcome(job: tuple[int, int]) -> Outcome:
    """By number, for scenarios hold functions that cannot be pickled."""
    return judged.hit_ratio_outcome(((HEALTHY + FAULTY)[job[0]], job[1]))


def _slope_jobs(only: str) -> list[Job]:
    return [
        (name, NAMED_SEED)
        for name, made in named().items()
        if isinstance(made.leak, Constant) and name.endswith(SLOPE_SCENARIOS) and only in name
    ]


if __name__ == "__main__":
    main()
