"""Runs the long measurements and writes performance.md with its picture."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.scrape import engine, fleet, memory, report, serving
from benchmarks.scrape.pages import filtered
from benchmarks.scrape.scrapers import PEERS, ours_filtered, scrapers
from benchmarks.scrape.steps import Steps

TEXT = """# What scraping costs

Written by `make bench-scrape`; do not edit. Measured on {machine}. Figures of CPU are user and
system time of the whole process with its children, so other load on the machine matters little;
latencies are as they were.

## One scrape, step by step

CPU in ms, best of the rounds, over kept connections to a server in another process. "Whole scrape"
is fetch, filter, parse, reading and verdict.

{steps}
## Fleets, beside peers

One page of {page_bytes:,} bytes and {page_samples} samples a target, each on a loopback address of
its own, one scrape in 10 s; every scraper at the same time on the same targets. The peers scrape
and store or forward; we scrape, judge and render. {peers}. Prometheus and vmagent run with
GOMAXPROCS=1, which costs them the least CPU. "filtered" is the exporter as shipped, which asks
vLLM for the wanted names only.

{fleets}
![CPU and memory by number of targets](performance.png)

{growth}
## Our own port

{served}
## Memory over time

One page a minute of an engine whose load moves at random.

{memory}
## What a scrape costs the engine

{engine}"""
NO_ENGINE = "Not measured in this run: give `--vllm URL --pid PID` of a running vLLM.\n"


def write(
    folder: Path,
    steps: Mapping[str, tuple[int, int, Steps]],
    sizes: Sequence[int],
    page: bytes,
    vllm: tuple[str, int] | None,
) -> None:
    """Measure everything and write the document into `folder`."""
    cut = filtered(page)
    kept = memory.measure(cut)
    costs = []
    for targets in sizes:
        costs += _said(fleet.measure(scrapers(), targets, page, cut))
        costs += _said(fleet.measure([ours_filtered()], targets, page, cut))
    served = serving.measure(sizes[-1], page, cut)
    asked = report.engine_table(engine.measure(*vllm)) if vllm else NO_ENGINE
    text = TEXT.format(
        machine=_machine(),
        page_bytes=len(page),
        page_samples=sum(1 for line in page.splitlines() if line and line[0] != ord("#")),
        peers=_versions(),
        steps=report.steps_table(steps),
        fleets=report.fleet_table(costs),
        growth=report.growth_table(costs),
        served=report.served_table(served),
        memory=report.memory_table(kept),
        engine=asked,
    )
    (folder / "performance.md").write_text(text)
    report.picture(costs, folder / "performance.png")


def _said(costs: list[fleet.Cost]) -> list[fleet.Cost]:
    for one in costs:
        print(f"{one.targets:5} {one.scraper:28} {one.cpu_ms_per_scrape:.3f} ms per scrape")
    return costs


def _machine() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    cpu = names[0] if names else "an unknown CPU"
    return f"{len(names)} cores of {cpu}, Python {platform.python_version()}"


def _versions() -> str:
    found = []
    for command in (["prometheus", "--version"], [str(PEERS / "vmagent"), "-version"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        except OSError:
            continue
        first = (done.stdout or done.stderr).splitlines()[0]
        found.append(first.partition(" (")[0])
    return "; ".join(found) if found else "No peer was installed"
