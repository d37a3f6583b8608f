"""Time and memory of one read of all GPUs."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from benchmarks.gpu_proof.eyes import Eyes, Proof

CYCLES = 200


def cost(eyes: Eyes, proof: Proof) -> None:
    """Wall time of a cycle, and CPU of both processes for it."""
    child = eyes.source.pids[0]
    walls, own, theirs = [], time.process_time(), child_cpu_seconds(child)
    for _ in range(CYCLES):
        start = time.perf_counter()
        eyes.look()
        walls.append(time.perf_counter() - start)
    proof.seen["cost_per_cycle"] = {
        "cycles": CYCLES,
        "wall_median_ms": round(1e3 * statistics.median(walls), 3),
        "wall_p99_ms": round(1e3 * sorted(walls)[int(0.99 * CYCLES)], 3),
        "cpu_exporter_ms": round(1e3 * (time.process_time() - own) / CYCLES, 3),
        "cpu_child_ms": round(1e3 * (child_cpu_seconds(child) - theirs) / CYCLES, 3),
        "child_resident_bytes": resident_bytes(child),
    }
    start = time.perf_counter()
    for _ in range(CYCLES):
        eyes.host()
    wall = (time.perf_counter() - start) / CYCLES
    proof.seen["cost_per_cycle"]["with_process_tree_wall_ms"] = round(1e3 * wall, 3)


def child_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
