"""Two pictures in one: recall against false alarms, and how long each detector takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks.detection.score import Outcome, summarise

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "kvcache-exporter", "svg.fonttype": "none", "font.size": 9})

COLORS = ("#7f7f7f", "#bcbd22", "#17becf", "#9467bd", "#8c564b", "#ff7f0e", "#1f77b4", "#2ca02c")
OURS = "#d62728"


def draw(path: Path, names: Mapping[str, str], outcomes: Mapping[str, Sequence[Outcome]]) -> None:
    """Write an SVG that is the same for the same numbers."""
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    keys = sorted(outcomes, key=lambda key: key == "ours")
    for i, key in enumerate(keys):
        summary = summarise(outcomes[key])
        color, ours = (OURS, True) if key == "ours" else (COLORS[i % len(COLORS)], False)
        false = max(summary.false_alarms_per_day, 1e-3)
        left.scatter(false, summary.recall, color=color, s=90 if ours else 45, zorder=3)
        delays = np.sort(np.array(summary.delays))
        share = np.arange(1, len(delays) + 1) / max(1, summary.leaky)
        right.step(
            delays, share, where="post", color=color, label=names[key], lw=2.5 if ours else 1.2
        )
    left.set(
        xscale="log",
        xlabel="false alarms a healthy engine-day (0 is drawn at 0.001)",
        ylabel="share of leaks found",
        ylim=(0, 1.05),
        xlim=(7e-4, 4),
    )
    right.set(
        xlabel="hours since the second lost block", ylabel="share of leaks found", xlim=(0, 36)
    )
    right.set_ylim(0, 1.05)
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
