"""Recordings of real servers: whole blocks on every scrape, and the injected truth at idle.

``traces/`` holds what was truly in use, written by the engine's process itself, and two recordings
whole; ``recordings/`` all of them, cut down to the series that are read.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trim_recordings

from kvcache_exporter import recording
from kvcache_exporter.follow import Follower
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import EngineReading, Target

DATA = Path(__file__).parent / "data"
ALL = sorted(path.name.removesuffix(".jsonl.gz") for path in (DATA / "recordings").glob("*.gz"))
WHOLE = sorted(path.name.removesuffix(".jsonl.gz") for path in (DATA / "traces").glob("*.gz"))


@dataclass(frozen=True)
class Row:
    """The truth at one moment, seconds as in the recording (which is stretched, as this is)."""

    time: float
    referenced_blocks: int
    orphaned_blocks: int


def truth(name: str) -> list[Row]:
    data = json.loads((DATA / "traces" / f"{name}.truth.json").read_text())
    assert data["truth_columns"][:3] == ["time", "referenced_blocks", "orphaned_blocks"]
    return [Row(*row[:3]) for row in data["truth"]]


def readings(path: Path) -> Iterator[tuple[float, EngineReading]]:
    follower = Follower(Target("recorded", "http://127.0.0.1/metrics"), JudgeSettings())
    for entry in recording.read(path):
        for engine in follower.read(entry.scrape).engines:
            yield entry.scrape.time, engine


def recorded(name: str) -> list[tuple[float, EngineReading]]:
    return list(readings(DATA / "recordings" / f"{name}.jsonl.gz"))


def around(rows: list[Row], time: float) -> list[Row]:
    """The last row before *time* and the first one after it."""
    at = bisect_right([row.time for row in rows], time)
    return rows[at - 1 : at + 1] if at else []


@pytest.mark.parametrize("name", ALL)
def test_every_scrape_gives_whole_blocks_and_no_problem(name: str) -> None:
    found = recorded(name)
    assert len(found) > 50
    for _, engine in found:
        assert isinstance(engine.used_blocks, int)
        assert isinstance(engine.pool_blocks, int)
        assert 0 <= engine.used_blocks <= engine.pool_blocks
        assert engine.problems == ()


@pytest.mark.parametrize("name", [name for name in ALL if len(truth(name)) > 1])
def test_used_blocks_of_an_idle_engine_are_the_truth(name: str) -> None:
    rows, compared, start = truth(name), 0, recorded(name)[0][0]
    for time, engine in recorded(name):
        beside = around(rows, time)
        known = {(row.referenced_blocks, row.orphaned_blocks) for row in beside}
        if engine.running or engine.waiting or len(known) != 1:
            continue
        [(referenced, orphaned)] = known
        if referenced == orphaned:  # the truth, too, was taken while the engine was idle
            assert engine.used_blocks == orphaned, f"{time - start:.0f} s into the recording"
            compared += 1
    idle = recorded(name)[-1][1]
    assert idle.running == 0
    assert idle.used_blocks == rows[-1].orphaned_blocks
    assert compared >= 30 or name.startswith("h200")


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("h200x2")])
def test_each_of_several_engines_ends_with_its_own_loss(name: str) -> None:
    last = {engine.engine: engine.used_blocks for _, engine in recorded(name)}
    data = json.loads((DATA / "traces" / f"{name}.truth.json").read_text())
    assert last == data["final_orphaned_blocks"]


@pytest.mark.parametrize("name", WHOLE)
def test_the_cut_down_recording_is_what_the_script_makes_of_the_whole_one(name: str) -> None:
    whole = DATA / "traces" / f"{name}.jsonl.gz"
    cut = DATA / "recordings" / f"{name}.jsonl.gz"
    assert trim_recordings.trimmed(whole) == trim_recordings.entries(cut)


@pytest.mark.parametrize("name", WHOLE)
def test_a_page_cut_down_reads_like_the_whole_one(name: str) -> None:
    assert list(readings(DATA / "traces" / f"{name}.jsonl.gz")) == recorded(name)


@pytest.mark.parametrize("name", ALL)
def test_a_recording_written_back_reads_the_same(name: str, tmp_path: Path) -> None:
    entries = list(recording.read(DATA / "recordings" / f"{name}.jsonl.gz"))
    writer = recording.Writer(tmp_path / "copy.jsonl")
    for entry in entries:
        writer.write(entry)
    writer.close()
    assert list(recording.read(tmp_path / "copy.jsonl")) == entries
