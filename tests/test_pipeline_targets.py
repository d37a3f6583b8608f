"""Where the targets come from, and what the log says of each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fleet import BROKEN, BUSY, Exporter, Fleet

from kvcache_exporter.cli._report import REPEAT_SECONDS, Reporter
from kvcache_exporter.config import Config, load
from kvcache_exporter.discovery import Found
from kvcache_exporter.model import Snapshot, Target
from kvcache_exporter.pipeline import Pipeline

Say = Callable[[Snapshot], list[str]]


@pytest.fixture
def say(caplog: pytest.LogCaptureFixture) -> Say:
    """Report a snapshot; return the lines logged for it."""
    reporter = Reporter()
    caplog.set_level(logging.INFO)

    def lines(snapshot: Snapshot) -> list[str]:
        caplog.clear()
        reporter(snapshot)
        return [record.getMessage() for record in caplog.records]

    return lines


def test_one_line_tells_that_a_target_connected_and_what_it_is(say: Say) -> None:
    exporter = Exporter(Fleet({"a:1": BUSY}))
    assert say(exporter.cycle()) == [
        "a:1: connected, vLLM 0.32.0, 1 engine(s), model tiny, pool 999 blocks"
    ]
    assert say(exporter.cycle()) == []


@pytest.mark.parametrize("name", [name for name in BROKEN if name != "raises:1"])
def test_one_line_tells_why_a_target_failed_and_what_to_do(say: Say, name: str) -> None:
    exporter = Exporter(Fleet({name: BROKEN[name]}))
    [line] = say(exporter.cycle())
    assert line.startswith(f"{name}: ")
    assert ": " in line.removeprefix(f"{name}: ")
    assert say(exporter.cycle()) == []


def test_a_target_that_comes_and_goes_does_not_flood_the_log(say: Say) -> None:
    fleet = Fleet({"a:1": BUSY})
    exporter = Exporter(fleet)
    lines = []
    for turn in range(int(REPEAT_SECONDS) // 10):
        fleet.answers["a:1"] = BROKEN["refused:1"] if turn % 2 else BUSY
        lines += say(exporter.cycle())
    assert (
        len(
            [
                line
                for line in lines
                if "connected" in line or "refused" in line or "listens" in line
            ]
        )
        == 2
    )


def test_a_target_that_left_discovery_is_told_and_forgotten(say: Say) -> None:
    exporter = Exporter(Fleet({"a:1": BUSY}))
    say(exporter.cycle())
    exporter.reconfigure(replace(exporter.config, targets=()))
    assert say(exporter.cycle()) == ["a:1: gone from discovery, its series end"]


def test_a_config_file_s_targets_are_what_is_scraped(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("targets: [{url: 'http://a:1', name: first}, {url: 'http://b:1'}]")
    fleet = Fleet({"first": BUSY, "b:1": BUSY})
    Exporter(fleet, load(path)).cycle()
    assert sorted(fleet.asked) == ["b:1", "first"]


class Guess:
    """Finds one pod that may or may not be a vLLM server."""

    def find(self, now: float) -> Found:
        return Found((Target("a:1", "http://a:1/metrics", guessed=True),))

    def close(self) -> None:
        pass


def test_a_guess_is_spoken_of_once_it_has_shown_vllm_series() -> None:
    fleet = Fleet({"a:1": b"node_load1 1\n"})
    pipeline = Pipeline(Config(), [Guess()], fleet.world())
    assert asyncio.run(pipeline.cycle()).targets == ()
    fleet.answers["a:1"] = BUSY
    assert [status.up for status in asyncio.run(pipeline.cycle()).targets] == [True]
    fleet.answers["a:1"] = b"node_load1 1\n"
    assert [status.up for status in asyncio.run(pipeline.cycle()).targets] == [False]


class Slow:
    """A finder whose first list takes a while to come."""

    def __init__(self) -> None:
        self.found = Found((), complete=False)

    def find(self, now: float) -> Found:
        return self.found

    def close(self) -> None:
        pass


def test_a_reload_keeps_targets_and_their_past_until_the_new_list_is_there() -> None:
    exporter = Exporter(Fleet({"a:1": BUSY, "b:1": BUSY}))
    exporter.cycle()
    before = dict(exporter.pipeline.followers)
    slow = Slow()
    exporter.pipeline.reconfigure(Config(), [slow], exporter.fleet.world())
    assert [status.target.name for status in exporter.cycle().targets] == ["a:1", "b:1"]

    slow.found = Found((before["a:1"].target,))
    assert [status.target.name for status in exporter.cycle().targets] == ["a:1"]
    assert exporter.pipeline.followers["a:1"] is before["a:1"]
    slow.found = Found((), complete=False)  # a list that was lost later is another matter
    assert exporter.cycle().targets == ()
