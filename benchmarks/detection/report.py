"""Writes the tables of docs/detection.md between their markers; the words around them stay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.detection.judged import SlopeError
from benchmarks.detection.regime import REGIMES
from benchmarks.detection.score import Outcome, Summary, summarise
from kvcache_exporter.analyze.report import EngineReport

Row = Sequence[str]


def markdown(header: Row, rows: Iterable[Row]) -> str:
    """A table with its header."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def insert(path: Path, tables: Mapping[str, str]) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``."""
    text = path.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"{path} has no markers {begin} and {end}")
        text = f"{before}{begin}\n{table}\n{end}{after}"
    path.write_text(text)


def detectors(names: Mapping[str, str], outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """All detectors side by side; ours stands last, in bold."""
    header = (
        "detector",
        "precision",
        "recall",
        "median delay, h",
        "p95 delay, h",
        "false alarms a healthy engine-day (95 % bound)",
        "healthy traces alarmed",
        "µs a scrape",
    )
    keys = sorted(outcomes, key=lambda key: key == "ours")
    return markdown(header, (_detector(names[key], summarise(outcomes[key])) for key in keys))


def _detector(name: str, row: Summary) -> Row:
    cells = [
        name,
        _number(row.precision),
        f"{row.found}/{row.leaky} = {_number(row.recall)}",
        _number(row.delay(0.5), 1),
        _number(row.delay(0.95), 1),
        f"{row.false_alarms_per_day:.3f} (< {row.false_alarms_bound:.3f})",
        f"{row.healthy_alarmed}/{row.healthy}",
        _number(row.microseconds_per_scrape, 1),
    ]
    return [f"**{cell}**" for cell in cells] if name == "kvcache-exporter" else cells


def regimes(outcomes: Sequence[Outcome]) -> str:
    """Ours by kind of leak, with the smallest rate found."""
    header = ("leak", "found", "median delay, h", "p95 delay, h", "smallest found, %/h")
    rows = []
    for name in REGIMES:
        these = [one for one in outcomes if one.regime == name]
        summary = summarise(these)
        found = [one.rate for one in these if one.delay_hours is not None]
        rows.append(
            [
                name,
                f"{summary.found}/{summary.leaky}",
                _number(summary.delay(0.5), 1),
                _number(summary.delay(0.95), 1),
                _number(min(found), 3) if found and "step" not in name else "",
            ]
        )
    return markdown(header, rows)


def hit_ratio(suites: Mapping[str, Sequence[Outcome]]) -> str:
    """Drift on development and held-out seeds."""
    header = ("seeds", "recall", "median delay, h", "p95 delay, h", "false alarms an engine-day")
    rows = []
    for name, outcomes in suites.items():
        summary = summarise(outcomes)
        false = sum(one.false_alarms for one in outcomes)
        days = sum(one.healthy_days for one in outcomes)
        rows.append(
            [
                name,
                f"{summary.found}/{summary.leaky}",
                _number(summary.delay(0.5), 1),
                _number(summary.delay(0.95), 1),
                f"{false / days:.4f} ({false} in {days:.0f} days)",
            ]
        )
    return markdown(header, rows)


def recordings(engines: Iterable[tuple[str, EngineReport]]) -> str:
    """What real servers' recordings were judged to be."""
    header = ("recording", "engine", "seen", "leak", "orphaned blocks", "proven", "finding")
    rows = []
    for name, one in engines:
        seen = dict.fromkeys(str(segment.state) for segment in one.timeline)
        now = one.judgement
        rows.append(
            [
                name,
                one.engine,
                ", ".join(seen),
                "yes" if one.leaked else "no",
                _known(now.orphaned_blocks),
                _known(now.orphaned_blocks_low),
                ", ".join(dict.fromkeys(finding.kind for finding in one.findings)),
            ]
        )
    return markdown(header, rows)


def slopes(errors: Iterable[SlopeError]) -> str:
    """Estimated over true slope."""
    header = ("scenario", "estimate / truth, median", "5 % to 95 %", "truth inside the interval")
    rows = []
    for error in errors:
        ranked = sorted(error.ratios)
        cells = [error.scenario, "none given", "", ""]
        if ranked:
            low, middle, high = (ranked[int(q * (len(ranked) - 1))] for q in (0.05, 0.5, 0.95))
            inside = f"{error.covered:.0%}"
            cells = [error.scenario, f"{middle:.2f}", f"{low:.2f} to {high:.2f}", inside]
        rows.append(cells)
    return markdown(header, rows)


def _number(value: float, digits: int = 2) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _known(value: float | None) -> str:
    return "" if value is None else f"{value}"
