"""Draw what the driver sees beside what the exporter sees, on a recorded leak of an H200.

The recording runs through the exporter's own pipeline (``replay``); the injected truth stands
beside it. Prints the numbers in the picture and writes ``docs/images/blind-spot.png``.

    python -m benchmarks.blind_spot
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

from kvcache_exporter.analyze import pages
from kvcache_exporter.analyze.replay import replay
from kvcache_exporter.model import Judgement, Observation, State

matplotlib.use("Agg")
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "tests" / "data" / "recordings" / "h200-leak-abort.jsonl.gz"
TRUTH = RECORDING.with_name("h200-leak-abort.truth.json")
PICTURE = ROOT / "docs" / "images" / "blind-spot.png"
GIB = 1 << 30
DRIVER, BLOCKS, PROVEN, INK = "#5b6770", "#c0392b", "#e8a39b", "#222222"


@dataclass
class Seen:
    """Everything drawn, by hours since the start of the recording."""

    hours: list[float] = field(default_factory=list)
    used_gib: list[float] = field(default_factory=list)
    total_gib: float = 0.0
    orphaned: list[float] = field(default_factory=list)
    proven: list[float] = field(default_factory=list)
    verdicts: list[tuple[float, State]] = field(default_factory=list)
    leak_hour: float | None = None
    findings: set[str] = field(default_factory=set)
    start: float | None = None

    def watch(self, observation: Observation, judgement: Judgement) -> None:
        """Take in one step of the replay."""
        self.start = observation.time if self.start is None else self.start
        hour = (observation.time - self.start) / 3600
        (gpu,) = observation.gpus
        self.hours.append(hour)
        self.used_gib.append((gpu.used_bytes or 0) / GIB)
        self.total_gib = (gpu.total_bytes or 0) / GIB
        self.orphaned.append(judgement.orphaned_blocks or 0)
        self.proven.append(judgement.orphaned_blocks_low or 0)
        self.findings |= {finding.kind for finding in judgement.findings}
        if not self.verdicts or self.verdicts[-1][1] is not judgement.state:
            self.verdicts.append((hour, judgement.state))
        if judgement.leak_active and self.leak_hour is None:
            self.leak_hour = hour


def read(recording: Path) -> Seen:
    """Run the recording through the pipeline."""
    seen = Seen()
    replay(pages.frames(recording), watch=seen.watch)
    return seen


def true_orphans(path: Path, seen: Seen) -> tuple[list[float], list[int]]:
    """(hours, blocks) as the injector counted them, a row for each change."""
    told = json.loads(path.read_text())
    time, orphaned = (told["columns"].index(name) for name in ("time", "orphaned_blocks"))
    hours = [(row[time] - (seen.start or 0.0)) / 3600 for row in told["truth"]]
    blocks = [row[orphaned] for row in told["truth"]]
    return [*hours, seen.hours[-1]], [*blocks, blocks[-1]]


def numbers(seen: Seen, truth: tuple[list[float], list[int]]) -> dict[str, Any]:
    """What the caption and the documents may quote."""
    hours, orphaned = truth
    first = next(hour for hour, blocks in zip(hours, orphaned, strict=True) if blocks)
    last = next(
        hour for hour, blocks in zip(hours, orphaned, strict=True) if blocks == orphaned[-1]
    )
    pairs = zip(seen.hours, seen.used_gib, strict=True)
    leaking = [used for hour, used in pairs if first <= hour <= last]
    return {
        "driver_used_gib_first": round(seen.used_gib[0], 2),
        "driver_used_gib_last": round(seen.used_gib[-1], 2),
        "driver_rise_percent": round(100 * (seen.used_gib[-1] / seen.used_gib[0] - 1), 2),
        "driver_rise_bytes_while_leaking": round((max(leaking) - min(leaking)) * GIB),
        "leak_hours": [round(first, 2), round(last, 2)],
        "orphaned_blocks_true": orphaned[-1],
        "orphaned_blocks_estimated": seen.orphaned[-1],
        "orphaned_blocks_proven": seen.proven[-1],
        "leak_called_after_hours": seen.leak_hour and round(seen.leak_hour, 2),
        "verdicts": [[round(hour, 2), str(state)] for hour, state in seen.verdicts],
        "findings": sorted(seen.findings),
    }


def draw(seen: Seen, truth: tuple[list[float], list[int]], told: dict[str, Any]) -> None:
    """Write the picture."""
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, (above, below) = plt.subplots(
        2, 1, sharex=True, figsize=(10, 6.2), layout="constrained"
    )
    _driver(above, seen, told)
    _blocks(below, seen, truth)
    for axes in (above, below):
        if seen.leak_hour is not None:
            axes.axvline(seen.leak_hour, color=BLOCKS, linewidth=1.2, linestyle=(0, (4, 3)))
    if seen.leak_hour is not None:
        below.annotate(
            f" verdict: leak\n after {seen.leak_hour:.2f} h", (seen.leak_hour, 0.86),
            xycoords=("data", "axes fraction"), color=BLOCKS, weight="bold",
        )  # fmt: skip
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=140, metadata={"Software": None})


def _driver(axes: Any, seen: Seen, told: dict[str, Any]) -> None:
    axes.plot(seen.hours, seen.used_gib, color=DRIVER, linewidth=2.2)
    axes.set_ylim(0, seen.total_gib)
    axes.set_ylabel("GiB")
    axes.set_title("What the driver sees: GPU memory used (NVML)", loc="left", color=INK)
    axes.text(
        seen.hours[-1], seen.used_gib[-1] - 8,
        f"{told['driver_used_gib_first']:.1f} to {told['driver_used_gib_last']:.1f} GiB: "
        f"{told['driver_rise_percent']:+.1f} % in all, "
        f"{told['driver_rise_bytes_while_leaking']:,} bytes while blocks are lost",
        ha="right", va="top", color=DRIVER,
    )  # fmt: skip


def _blocks(axes: Any, seen: Seen, truth: tuple[list[float], list[int]]) -> None:
    axes.fill_between(seen.hours, seen.proven, color=PROVEN, linewidth=0, label="proven")
    axes.plot(seen.hours, seen.orphaned, color=BLOCKS, linewidth=2.2, label="estimated")
    axes.step(
        *truth, where="post", color=INK, linewidth=1.2, linestyle=":", label="injected (truth)"
    )
    axes.set_ylim(0, 1.12 * max(truth[1]))
    axes.set_xlim(0, seen.hours[-1])
    axes.set_ylabel("blocks")
    axes.set_xlabel("hours")
    axes.set_title("What it cannot see: KV blocks that nobody owns", loc="left", color=INK)
    axes.legend(loc="lower right", frameon=False)


def main() -> None:
    seen = read(RECORDING)
    truth = true_orphans(TRUTH, seen)
    told = numbers(seen, truth)
    print(json.dumps(told, indent=1))
    draw(seen, truth, told)


if __name__ == "__main__":
    main()
