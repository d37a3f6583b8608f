"""Pairs of turns compared: the median of their ratios, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median
from typing import Any

CERTAINTY = 0.95
ROWS = {
    "tokens_per_second": "tokens a second",
    "engine_cpu_microseconds_per_token": "CPU of the engine process, µs a token",
}


def compared(pairs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return medians with and without, the median ratio, its interval and all ratios."""
    ratios = sorted(pair["with"] / pair["without"] for pair in pairs)
    low, high = ratios[(rank := outer_rank(len(ratios)))], ratios[-1 - rank]
    return {
        "with": round(median(pair["with"] for pair in pairs), 1),
        "without": round(median(pair["without"] for pair in pairs), 1),
        "ratio": round(median(ratios), 4),
        "interval": [round(low, 4), round(high, 4)],
        "ratios": [round(one, 4) for one in ratios],
    }


def outer_rank(count: int) -> int:
    """Return how many of *count* sorted values may be left out at each end.

    The median of what they are drawn from lies between the others with 95 % certainty at least, by
    the sign test (no assumption on how they are distributed); 0 where there are too few for that.
    """
    tail, rank = 0.0, 0
    while (tail := tail + comb(count, rank) / 2**count) <= (1 - CERTAINTY) / 2:
        rank += 1
    return max(0, rank - 1)


def table(told: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    lines = [
        "| | without | with | ratio | 95 % interval | pairs |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    for key, name in ROWS.items():
        one = told[key]
        low, high = one["interval"]
        lines.append(
            f"| {name} | {one['without']:,} | {one['with']:,} | {one['ratio']:.3f} "
            f"| {low:.3f} to {high:.3f} | {len(one['ratios'])} |"
        )
    return "\n".join(lines) + f"\n\n{told['tokens_a_turn']:,} tokens a turn; {told['machine']}\n"
