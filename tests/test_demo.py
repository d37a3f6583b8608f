"""The demo tells each story with the right verdict, on its virtual clock alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from click.testing import CliRunner

from kvcache_exporter.cli import main
from kvcache_exporter.demo import stage
from kvcache_exporter.model import EngineStatus, Snapshot
from kvcache_exporter.simulate.cast import STORY_SECONDS, Member, demo_cast
from kvcache_exporter.simulate.fleet import Fleet

CAST = {member.name: member for member in demo_cast()}
VERDICTS = {
    "rag-drifting": "ok",
    "chat-steady": "ok",
    "code-bursty": "ok",
    "agents-leaking": "leak",
    "summary-leaking-busy": "leak",
    "batch-saturated": "saturated",
    "vision-stalled": "stalled",
    "prefill-held": "held_idle",
    "night-asleep": "paused",
}


def told(member: Member) -> tuple[Fleet, EngineStatus]:
    """Tell one member's story to its end, through the servers and the pipeline of the demo."""
    fleet = Fleet((replace(member, deployed_seconds=0.0),))
    life = STORY_SECONDS - member.deployed_seconds

    async def play() -> Snapshot:
        async with stage(fleet) as running:
            while fleet.clock < life:
                snapshot = await running.cycle()
        return snapshot

    [engine] = asyncio.run(play()).engines
    return fleet, engine


def test_every_member_of_the_cast_has_a_verdict_to_come_to() -> None:
    assert VERDICTS.keys() == CAST.keys()


@pytest.mark.parametrize("name", VERDICTS)
def test_each_story_ends_with_its_verdict(name: str) -> None:
    fleet, engine = told(CAST[name])
    judgement = engine.judgement
    assert judgement.state == VERDICTS[name], judgement.because
    assert judgement.leak_active is (VERDICTS[name] == "leak")
    drifting = [f for f in judgement.findings if f.kind == "hit_ratio_drift"]
    assert bool(drifting) is (name == "rag-drifting")
    assert engine.reading is not None
    assert engine.reading.used_blocks == fleet.engines[name].used_blocks


def test_the_orphans_found_are_those_that_were_lost() -> None:
    fleet, engine = told(CAST["agents-leaking"])
    found, truth = engine.judgement.orphaned_blocks, fleet.engines["agents-leaking"].leaked_blocks
    assert found is not None
    assert 0.95 * truth <= found <= truth


def test_the_driver_sees_nothing_of_it() -> None:
    fleet = Fleet(demo_cast())
    fleet.advance(600)
    [early, *_] = fleet.read_gpus().gpus
    fleet.advance(3 * 3600)
    [late, *_] = fleet.read_gpus().gpus
    assert early.used_bytes == late.used_bytes


def test_the_command_ends_in_time_with_a_row_for_each_engine_known_by_then() -> None:
    result = CliRunner().invoke(main, ["demo", "--seconds", "1", "--port", "0"])
    assert result.exit_code == 0, result.output
    assert "Serving http://127.0.0.1:" in result.output
    assert "rag-drifting" in result.output
    assert "truth:" in result.output


def test_a_port_in_use_is_told_with_what_to_do() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["demo", "--port", str(port)])
    assert result.exit_code == 2
    assert "--port" in result.output
