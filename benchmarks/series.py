"""How many series an exporter gives Prometheus, and how large its page is, by number of engines.

    python -m benchmarks.series              # the table in docs/scaling.md
    python -m benchmarks.series --cost       # also what rendering and compressing it takes here

One simulated engine is followed until nearly everything about it is known, a leak included; the
fleet is that engine under other names, each with a server and a GPU of its own.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Sequence
from dataclasses import replace

from kvcache_exporter.expose import render
from kvcache_exporter.follow import Follower
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import (
    EngineStatus,
    GpuReading,
    GpuSourceReading,
    Scrape,
    Snapshot,
    Target,
    TargetStatus,
)
from kvcache_exporter.own_process import own_metrics
from kvcache_exporter.simulate.config import EngineConfig
from kvcache_exporter.simulate.engine import Engine
from kvcache_exporter.simulate.leaks import Leak
from kvcache_exporter.simulate.site import Site
from kvcache_exporter.simulate.workload import Workload

FLEETS = (1, 10, 100, 1_000, 10_000)
SECONDS = 7_200
STEP_SECONDS = 30
SCRAPE_INTERVAL_SECONDS = 15
"""What deploy/k8s asks Prometheus for."""


def known_engine() -> tuple[TargetStatus, EngineStatus]:
    """Follow a leaking engine for two hours of its time."""
    config = EngineConfig("qwen2.5-7b", num_gpu_blocks=4097, leaks=(Leak("finish", 0.2, 2),))
    engine = Engine(config, Workload(0.5, busy_seconds=300, quiet_seconds=300), seed=1)
    site = Site([engine])
    target = Target("prod/pod-00000:8000", "http://10.0.0.1:8000/metrics")
    follower = Follower(target, JudgeSettings())
    for now in range(0, SECONDS, STEP_SECONDS):
        engine.advance(STEP_SECONDS)
        scrape = Scrape(target.name, 1.8e9 + now, 0.01, site.answer("/metrics").body)
        status, engines = follower.judge(scrape, follower.read(scrape))
    reading = engines[0].reading
    assert reading is not None
    return status, replace(engines[0], reading=replace(reading, pool_bytes=7_516_192_768))


def snapshot(count: int, status: TargetStatus, engine: EngineStatus) -> Snapshot:
    """Return a fleet of *count* such engines."""
    targets, engines, gpus = [], [], []
    for number in range(count):
        name, uuid = f"prod/pod-{number:05}:8000", f"GPU-{number:08}-1111-2222-3333-444444444444"
        labels = (("namespace", "prod"), ("pod", f"pod-{number:05}"))
        targets.append(replace(status, target=replace(status.target, name=name, labels=labels)))
        held = ((uuid, 134_630_014_976),)
        engines.append(
            replace(engine, target=name, labels=labels, gpu_uuids=(uuid,), gpu_bytes=held)
        )
        gpus.append(_gpu(uuid, number))
    source = GpuSourceReading("nvml", 1.8e9, True, tuple(gpus), expected=count, seen=count)
    known = tuple((gpu.uuid, 1024.0) for gpu in gpus)
    return Snapshot(
        1.8e9, 0.5, tuple(targets), tuple(engines), (source,), tuple(gpus),
        gpu_outside_pool_bytes=known, gpu_unowned_bytes=known,
    )  # fmt: skip


def _gpu(uuid: str, number: int) -> GpuReading:
    return GpuReading(
        uuid, "nvml", index=number % 8, model="NVIDIA H200", driver_version="580.159.04",
        total_bytes=150_754_820_096, used_bytes=134_639_255_552,
        reserved_bytes=644_939_776, free_bytes=15_470_624_768,
    )  # fmt: skip


def series_of(page: bytes) -> int:
    """Count the samples of a page."""
    return sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))


def table(fleets: Sequence[int], cost: bool) -> str:
    """Return a row a fleet; sizes to two digits, for they hang on how long the numbers are."""
    known = known_engine()
    extra = " compressed MB | render and compress, CPU s |" if cost else ""
    lines = ["| engines | series | series an engine | page MB | samples a second |" + extra]
    lines.append("|--:" * (7 if cost else 5) + "|")
    for count in fleets:
        fleet = snapshot(count, *known)
        begun = time.process_time()
        page = render(fleet) + own_metrics()
        small = gzip.compress(page, compresslevel=1)
        seconds = time.process_time() - begun
        series = series_of(page)
        row = f"| {count:,} | {series:,} | {series / count:.0f} | {len(page) / 1e6:.2g} |"
        row += f" {series / SCRAPE_INTERVAL_SECONDS:,.0f} |"
        lines.append(row + (f" {len(small) / 1e6:.2g} | {seconds:.2g} |" if cost else ""))
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Series and bytes by number of engines.")
    parser.add_argument("--engines", type=int, nargs="+", default=FLEETS)
    parser.add_argument("--cost", action="store_true", help="also measure CPU on this machine")
    given = parser.parse_args()
    print(table(given.engines, given.cost))


if __name__ == "__main__":
    main()
