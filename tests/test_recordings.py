"""Recordings of real servers, leaks injected into a patched engine: the truth is known."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from kvcache_exporter.analyze import pages, replay
from kvcache_exporter.analyze.report import EngineReport
from kvcache_exporter.model import State

FOLDER = Path(__file__).parent / "data" / "recordings"
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))
LEAKY = [name for name in NAMES if "leak" in name]
HEALTHY = [name for name in NAMES if "leak" not in name]


@cache
def engines(name: str) -> tuple[EngineReport, ...]:
    return replay(pages.frames(FOLDER / f"{name}.jsonl.gz")).engines


@cache
def final_orphans(name: str) -> dict[str, int]:
    """Blocks lost at the end, by engine."""
    truth = json.loads((FOLDER / f"{name}.truth.json").read_text())
    return truth.get("final_orphaned_blocks") or {"0": truth["truth"][-1][1]}


def test_there_are_recordings_of_both_kinds() -> None:
    assert len(LEAKY) >= 5
    assert len(HEALTHY) >= 4


@pytest.mark.parametrize("name", LEAKY)
def test_a_real_leak_is_found(name: str) -> None:
    assert all(one.leaked for one in engines(name))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_server_is_not_called_leaky(name: str) -> None:
    states = {segment.state for one in engines(name) for segment in one.timeline}
    assert not states & {State.LEAK, State.LEAK_SUSPECT, State.STALLED}
    assert not any(one.leaked for one in engines(name))


@pytest.mark.parametrize("name", LEAKY)
def test_orphaned_blocks_equal_the_truth(name: str) -> None:
    found = {one.engine: one.judgement.orphaned_blocks for one in engines(name)}
    assert found == final_orphans(name)


@pytest.mark.parametrize("name", LEAKY)
def test_what_is_proven_never_exceeds_the_truth(name: str) -> None:
    for one in engines(name):
        assert (one.judgement.orphaned_blocks_low or 0) <= final_orphans(name)[one.engine]
