"""Draw what the driver sees beside what the exporter sees, on a recorded leak of an H200.

The recording runs through the exporter's own pipeline (``replay``); the injected truth stands
beside it. Prints the numbers in the picture and writes ``docs/images/blind-spot.png``.

    python -m benchmarks.blind_spot
"""

from __future__ import annotations

import json
import math
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
STRETCH = 15
"""The recording's clock runs this much faster than the server did, so that a leak takes hours."""
DRIVER, BLOCKS, PROVEN, LOAD, INK = "#5b6770", "#c0392b", "#f3c9c4", "#b8c4cc", "#222222"
OTHER = "#dfe3e6"
COLOURS = {
    State.OK: "#8fbf9f",
    State.HELD_IDLE: "#f2d16b",
    State.LEAK_SUSPECT: "#e89c4f",
    State.LEAK: BLOCKS,
}


@dataclass
class Seen:
    """Everything drawn, by hours since the start of the recording."""

    hours: list[float] = field(default_factory=list)
    used_gib: list[float] = field(default_factory=list)
    total_gib: float = 0.0
    used_blocks: list[float] = field(default_factory=list)
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
        self.used_blocks.append(_known(getattr(observation.reading, "used_blocks", None)))
        self.orphaned.append(_known(judgement.orphaned_blocks))
        self.proven.append(_known(judgement.orphaned_blocks_low))
        self.findings |= {finding.kind for finding in judgement.findings}
        if not self.verdicts or self.verdicts[-1][1] is not judgement.state:
            self.verdicts.append((hour, judgement.state))
        if judgement.leak_active and self.leak_hour is None:
            self.leak_hour = hour


def _known(value: int | None) -> float:
    return math.nan if value is None else float(value)


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
    figure, (driver, blocks, verdict) = plt.subplots(
        3, 1, sharex=True, figsize=(10, 7), layout="constrained", height_ratios=(5, 5, 0.8)
    )
    _driver(driver, seen, told)
    _blocks(blocks, seen, truth)
    _verdict(verdict, seen)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=140, metadata={"Software": None})


def _driver(axes: Any, seen: Seen, told: dict[str, Any]) -> None:
    axes.plot(seen.hours, seen.used_gib, color=DRIVER, linewidth=2.2)
    axes.set_ylim(0, seen.total_gib)
    axes.set_ylabel("GiB")
    axes.set_title("What the driver sees: GPU memory used (NVML)", loc="left", color=INK)
    axes.text(
        0.02,
        0.5,
        f"{told['driver_used_gib_first']:.1f} to {told['driver_used_gib_last']:.1f} GiB: "
        f"{told['driver_rise_percent']:+.1f} % in all, "
        f"{told['driver_rise_bytes_while_leaking']:,} bytes while blocks are lost",
        transform=axes.transAxes,
        color=DRIVER,
    )


def _blocks(axes: Any, seen: Seen, truth: tuple[list[float], list[int]]) -> None:
    axes.plot(seen.hours, seen.used_blocks, color=LOAD, linewidth=1.0, label="used")
    axes.step(*truth, where="post", color=INK, linewidth=1.4, linestyle=":", label="lost (truth)")
    axes.plot(seen.hours, seen.orphaned, color=BLOCKS, linewidth=2.2, label="lost (estimated)")
    axes.fill_between(seen.hours, seen.proven, color=PROVEN, linewidth=0, label="lost (proven)")
    axes.set_xlim(0, seen.hours[-1])
    axes.set_ylim(0, None)
    axes.set_ylabel("KV blocks")
    axes.set_title("What it cannot see: blocks that nobody owns", loc="left", color=INK)
    axes.legend(loc="upper left", frameon=False)


def _verdict(axes: Any, seen: Seen) -> None:
    ends = [*(hour for hour, _ in seen.verdicts[1:]), seen.hours[-1]]
    told: set[State] = set()
    for (start, state), end in zip(seen.verdicts, ends, strict=True):
        label = None if state in told else str(state)
        axes.axvspan(start, end, color=COLOURS.get(state, OTHER), linewidth=0, label=label)
        told.add(state)
    axes.set_yticks([])
    axes.set_ylabel("verdict", rotation=0, ha="right", va="center")
    axes.set_xlabel(f"hours (recorded in {60 * seen.hours[-1] / STRETCH:.0f} minutes)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -1.2), ncols=len(told), frameon=False)


def main() -> None:
    seen = read(RECORDING)
    truth = true_orphans(TRUTH, seen)
    told = numbers(seen, truth)
    print(json.dumps(told, indent=1))
    draw(seen, truth, told)


if __name__ == "__main__":
    main()
