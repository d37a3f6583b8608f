"""The demo's tables: a row an engine, and at the end why, and what was really going on."""

from __future__ import annotations

import textwrap

from kvcache_exporter.model import EngineStatus, Snapshot
from kvcache_exporter.simulate.cast import STORY_SECONDS
from kvcache_exporter.simulate.fleet import Fleet

WIDTH = 100
BAR = 30
_SHORT = {"hit_ratio_drift": "drift"}
COLUMNS = (("USED", 7), ("OF", 7), ("LOST", 7), ("HIT RATIO", 11), ("DRIVER GiB", 13))
HEADER = f"{'ENGINE':<22}{'VERDICT':<18}" + "".join(f"{name:>{size}}" for name, size in COLUMNS)


def live_table(fleet: Fleet, snapshot: Snapshot) -> str:
    """Return a progress line and a row an engine, each ended by a line break."""
    told = min(1.0, fleet.clock / STORY_SECONDS)
    bar = "█" * round(told * BAR) + "░" * (BAR - round(told * BAR))
    lines = [f"{bar} {fleet.clock / 3600:4.1f} of {STORY_SECONDS / 3600:.1f} virtual hours", HEADER]
    return "".join(f"{line}\n" for line in [*lines, *_rows(snapshot)])


def final_table(fleet: Fleet, snapshot: Snapshot) -> str:
    """Return the rows once more, each with its reasons and with the truth of the simulation."""
    stories = {member.name: member.story for member in fleet.cast}
    lines = [f"After {fleet.clock / 3600:.1f} virtual hours:", "", HEADER]
    for engine, row in zip(snapshot.engines, _rows(snapshot), strict=True):
        lines.append(row)
        lines += _indented("truth", stories[engine.target])
        for reason in _reasons(engine):
            lines += _indented("because", reason)
    lines += ["", _moral(snapshot)]
    return "\n".join(lines)


def verdict(engine: EngineStatus) -> str:
    """Return the state and what is true beside it, in few words."""
    found = (_SHORT.get(f.kind, f.kind) for f in engine.judgement.findings)
    return " + ".join([engine.judgement.state.value, *found])


def _rows(snapshot: Snapshot) -> list[str]:
    driver = {gpu.uuid: gpu.used_bytes for gpu in snapshot.gpus}
    return [_row(engine, driver) for engine in snapshot.engines]


def _row(engine: EngineStatus, driver: dict[str, int | None]) -> str:
    reading, judgement = engine.reading, engine.judgement
    sizes = [size for uuid in engine.gpu_uuids if (size := driver.get(uuid)) is not None]
    cells = (
        _number(reading.used_blocks if reading else None),
        _number(reading.pool_blocks if reading else None),
        _number(judgement.orphaned_blocks),
        "-" if judgement.hit_ratio is None else f"{judgement.hit_ratio:.2f}",
        f"{sum(sizes) / 2**30:.1f}" if sizes else "-",
    )
    printed = "".join(f"{cell:>{size}}" for cell, (_, size) in zip(cells, COLUMNS, strict=True))
    return f"{engine.target:<22}{verdict(engine):<18}{printed}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _reasons(engine: EngineStatus) -> list[str]:
    judgement = engine.judgement
    return [*judgement.because, *(finding.because for finding in judgement.findings)]


def _indented(word: str, text: str) -> list[str]:
    margin = f"    {word + ':':<9}"
    return textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=" " * len(margin))


def _moral(snapshot: Snapshot) -> str:
    leaking = [engine for engine in snapshot.engines if engine.judgement.leak_active]
    if not leaking:
        return "No leak was found so far; give it more --seconds."
    names = " and ".join(engine.target for engine in leaking)
    return (
        "Every scrape succeeded and the driver's line has been flat since warm-up;"
        f" yet {names} will run out of blocks."
    )
