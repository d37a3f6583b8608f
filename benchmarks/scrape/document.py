"""Runs the long measurements and writes performance.md with its picture."""

from __future__ import annotations

import multiprocessing
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks.document import place
from benchmarks.endurance.__main__ import COMMAND as ENDURANCE
from benchmarks.scrape import engine, fleet, memory, report, serving
from benchmarks.scrape.pages import filtered
from benchmarks.scrape.scrapers import PEERS, scrapers
from benchmarks.scrape.steps import Steps

TEXT = """# What scraping costs

Written by `make bench-scrape`; do not edit. Measured on {machine}.
CPU is user and system time of a whole process with its children; latencies are wall time and
suffer from whatever else the machine was doing.

## One scrape, step by step

CPU in ms, best of the rounds, to a server in another process. "Whole scrape" is fetch, filter,
parse, reading and verdict over a kept connection. vLLM closes connections that idle for 5 s, so at
an interval of 10 s each scrape makes a new one.

{steps}
## Fleets, beside peers

One page of {page_bytes:,} bytes and {page_samples} samples a target, each target on a loopback
address of its own, one scrape in 10 s, one scraper after the other. The peers scrape and store or
forward everything; we scrape, judge and render. "ours" is the exporter as shipped, which asks vLLM
for the wanted names only; "whole page" has that switched off.
Peers: {peers}, with GOMAXPROCS=1, which costs them the least CPU.

{fleets}
![CPU and memory by number of targets](images/performance.png)

{growth}
## Our own port

{served}
## Memory over time

One page a minute of an engine whose load moves at random.

{memory}
## What a scrape costs the engine

A real vLLM on this machine's CPU. A large part of the filtered page's cost are four histograms, of
which we need sums and counts: `prometheus_client` makes all their buckets before it drops them.

{engine}
## Days of faults

{endurance}"""
NO_ENGINE = (
    "Not measured in this run: `make real-vllm` installs one, or give `--vllm` and `--pid`.\n"
)


def write(
    folder: Path,
    steps: Mapping[str, tuple[int, int, Steps]],
    sizes: Sequence[int],
    page: bytes,
    vllm: tuple[str, int] | None,
) -> None:
    """Measure everything and write the document into `folder`."""
    cut = filtered(page)
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # memory that nobody has used
        kept = pool.apply(memory.measure, (cut,))
    costs = [
        _said(fleet.measure(scraper, targets, page, cut))
        for targets in sizes
        for scraper in scrapers()
    ]
    served = serving.measure(sizes[-1], page, cut)
    with nullcontext(vllm) if vllm else engine.installed() as found:
        asked = report.engine_table(engine.measure(*found)) if found else NO_ENGINE
    path = folder / "performance.md"
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
        endurance=place(path, ENDURANCE),
    )
    path.write_text(text)
    (folder / "images").mkdir(exist_ok=True)
    report.picture(costs, folder / "images" / "performance.png")


def _said(one: fleet.Cost) -> fleet.Cost:
    print(f"{one.targets:5} {one.scraper:28} {one.cpu_ms_per_scrape:.3f} ms", flush=True)
    return one


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
    if shutil.which("prometheus"):
        done = subprocess.run(["prometheus", "--version"], capture_output=True, text=True)
        found.append((done.stdout + done.stderr).partition(" (")[0].replace(", version", ""))
    if (PEERS / "vmagent").exists():
        found.append(f"vmagent {(PEERS.parents[1] / 'version').read_text().strip()}")
    return " and ".join(found) if found else "none was installed"
