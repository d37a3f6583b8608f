"""What a healthy hour showed: one JSON object, and a table of it for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

ENDS = ("finish", "abort", "preemption")
UNSEEN_SECONDS = 30.0
"""With no sample for longer the hour proves nothing; an ask may fail where no core is to spare."""


def read(folder: Path) -> dict[str, Any]:
    """Return the result of the run that has written to *folder*."""
    told, looks = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("answers.jsonl", "engine.jsonl")
    )
    return result(told, looks)


def result(told: list[dict[str, Any]], looks: list[dict[str, Any]]) -> dict[str, Any]:
    """Put together what the audit answered and what the engine's thread counted itself."""
    answers = [one for one in told if "reason" not in one]
    unanswered = [
        {key: one[key] for key in ("time", "reason", "load")} for one in told if "reason" in one
    ]
    samples = list({one["time"]: one for one in answers}.values())
    found = {
        "seconds": round(answers[-1]["time"] - answers[0]["time"]) if answers else 0,
        "asks": len(answers) + len(unanswered),
        "unanswered": unanswered,
        "samples": len(samples),
        "samples_of_an_idle_engine": sum(not one["running"] for one in samples),
        "samples_with_a_preempted_or_waiting_request": sum(one["waiting"] > 0 for one in samples),
        "longest_time_between_samples_seconds": _longest(samples),
        "samples_with_orphaned_blocks": sum(one["orphaned"] > 0 for one in samples),
        "samples_with_ghost_blocks": sum(one["ghosts"] > 0 for one in samples),
        "samples_with_settled_blocks": sum((one["settled"] or 0) > 0 for one in samples),
        "samples_that_do_not_add_up": sum(one["unaccounted"] != 0 for one in samples),
        "pool_blocks": looks[-1]["pool"] if looks else None,
        "engine_looks": len(looks),
        "engine_looks_that_do_not_add_up": sum(
            one["free"] + one["referenced"] != one["pool"] for one in looks
        ),
        "steps": looks[-1]["steps"] if looks else 0,
        "requests_that_ended": {kind: looks[-1][kind] if looks else 0 for kind in ENDS},
    }
    return found | {"wrong": list(_wrong(found))}


def _longest(samples: list[dict[str, Any]]) -> float:
    gaps = (after["time"] - before["time"] for before, after in pairwise(samples))
    return round(max(gaps, default=0.0), 2)


def _wrong(told: dict[str, Any]) -> Iterator[str]:
    """Yield what must not be: something lost, something unseen, or nothing proved."""
    for name in (
        "samples_with_orphaned_blocks", "samples_with_ghost_blocks", "samples_with_settled_blocks",
        "samples_that_do_not_add_up", "engine_looks_that_do_not_add_up",
        "samples_of_an_idle_engine",
    ):  # fmt: skip
        if told[name]:
            yield name
    yield from (f"no {kind}" for kind, count in told["requests_that_ended"].items() if not count)
    if not told["samples"] or told["longest_time_between_samples_seconds"] > UNSEEN_SECONDS:
        yield "not seen all the time"


def table(told: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    ends = told["requests_that_ended"]
    rows = {
        "seconds under load": told["seconds"],
        "engine steps": told["steps"],
        "requests finished": ends["finish"],
        "requests aborted by a client that hung up": ends["abort"],
        "preemptions": ends["preemption"],
        "times asked / without an answer": f"{told['asks']:,} / {len(told['unanswered'])}",
        "samples": told["samples"],
        "longest time between two samples, s": told["longest_time_between_samples_seconds"],
        "samples with no request running": told["samples_of_an_idle_engine"],
        "samples with a request waiting": told["samples_with_a_preempted_or_waiting_request"],
        "**samples with an orphaned block**": told["samples_with_orphaned_blocks"],
        "samples with a ghost": told["samples_with_ghost_blocks"],
        "samples with a block called lost": told["samples_with_settled_blocks"],
        "samples in which owners and free do not make the pool": told["samples_that_do_not_add_up"],
        "looks of the engine's thread at every block": told["engine_looks"],
        "of these, free + referenced is not the pool": told["engine_looks_that_do_not_add_up"],
    }
    lines = [f"| {what} | {_shown(value)} |" for what, value in rows.items()]
    return "\n".join(["| a healthy, busy engine | |", "| :-- | --: |", *lines]) + "\n"


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
