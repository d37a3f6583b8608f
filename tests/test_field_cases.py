"""Cases that operators met in public bug reports of vLLM, its forks and connectors.

Where a report shows numbers, they are the file in ``data/series``; long ones are told again by
``Story``. Every case runs as users run it: ``analyze --csv``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kvcache_exporter.cli import main
from tests.story import Story

SERIES = Path(__file__).parent / "data" / "series"
HOUR = 3600.0
MINUTE = 60.0


def analyze(path: Path, *options: str) -> tuple[dict[str, Any], int]:
    """Return the JSON and the exit status of ``analyze --csv``."""
    result = CliRunner().invoke(main, ["analyze", "--csv", str(path), "--json", *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return json.loads(result.stdout), result.exit_code


def judged(tmp_path: Path, story: Story, *options: str) -> dict[str, Any]:
    """The one engine of a story."""
    report, _ = analyze(story.write(tmp_path / "story.csv"), *options)
    (engine,) = report["engines"]
    return engine


def states(engine: dict[str, Any]) -> list[str]:
    return [segment["state"] for segment in engine["timeline"]]


def said(engine: dict[str, Any], state: str) -> str:
    return " ".join(
        text for s in engine["timeline"] if s["state"] == state for text in s["because"]
    )


LEAKY = {"leak", "leak_suspect"}


# -- true leaks ---------------------------------------------------------------------------


def test_a_decode_engine_that_keeps_blocks_of_failed_transfers_leaks(tmp_path: Path) -> None:
    story = Story(connector=1)
    for lost in range(0, 400, 50):
        story.busy(10 * MINUTE, leaked=lost, transfer_errors=0).add(transfer_errors=1)
        story.idle(25 * MINUTE, used=lost + 50)
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "leak"
    assert 350 <= engine["final"]["orphaned_blocks"] <= 400
    assert engine["final"]["seconds_to_exhaustion"] > 0
    assert engine["final"]["blocks_lost_per_event"].keys() == {"transfer_error"}


def test_a_leak_stays_visible_when_it_ends_in_a_wedge(tmp_path: Path) -> None:
    story, pool = Story(connector=1), 8192
    for lost in range(0, pool, pool // 8):
        story.busy(10 * MINUTE, leaked=lost, running=4).idle(25 * MINUTE, used=lost + pool // 8)
    story.during(HOUR, running=0, used=pool, waiting=lambda s: 1 + s // 120, http=0.01)
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "stalled"
    assert engine["final"]["leak_active"]
    assert "leak" in states(engine)


@pytest.mark.parametrize(
    ("event", "blocks", "jumps"),
    [
        ("abort", 40, {"first": 1}),
        ("preemption", 25, {"preemptions": 1}),
        ("transfer_error", 60, {"transfer_errors": 1}),
    ],
)
def test_the_best_correlate_of_a_floor_that_rises_is_named(
    tmp_path: Path, event: str, blocks: int, jumps: dict[str, float]
) -> None:
    story, lost = Story(), 0
    story.busy(10 * MINUTE, preemptions=0, transfer_errors=0).idle(15 * MINUTE)
    for events in (1, 3, 0, 2, 4, 1, 0, 2, 3, 1):
        story.busy(10 * MINUTE, leaked=lost)
        lost += blocks * events
        story.add(**{name: jump * events for name, jump in jumps.items()})
        story.idle(15 * MINUTE, used=lost)
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "leak"
    assert engine["final"]["orphaned_blocks"] == lost
    assert engine["final"]["blocks_lost_per_event"] == pytest.approx({event: blocks}, rel=0.25)


def test_a_leak_with_every_finished_request_is_named_as_such(tmp_path: Path) -> None:
    story, lost = Story(), 0
    story.busy(10 * MINUTE).idle(15 * MINUTE)
    for rate in (0.2, 0.6, 0.1, 0.9, 0.4, 0.7, 0.3):
        requests = round(rate * 600)
        story.busy(10 * MINUTE, leaked=lost, done=rate, first=rate)
        lost += 2 * requests
        story.idle(15 * MINUTE, used=lost)
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "leak"
    assert engine["final"]["blocks_lost_per_event"] == pytest.approx({"request": 2}, rel=0.25)


def test_the_leaking_engine_of_a_pair_is_called_and_the_other_is_not(tmp_path: Path) -> None:
    prefill = Story(target="prefill", connector=1)
    decode = Story(target="decode", connector=1)
    for lost in range(0, 400, 50):
        prefill.busy(10 * MINUTE, leaked=lost).idle(25 * MINUTE, used=lost + 50)
        decode.busy(10 * MINUTE).idle(25 * MINUTE)
    report, status = analyze(prefill.write(tmp_path / "pair.csv", decode))
    final = {engine["target"]: engine["final"]["state"] for engine in report["engines"]}
    assert final == {"prefill": "leak", "decode": "ok"}
    assert status == 2


def test_growing_host_memory_is_a_finding_of_its_own(tmp_path: Path) -> None:
    story = Story(interval=30)
    story.busy(
        12 * HOUR,
        process_resident_memory_bytes=lambda s: int((6.0 + 0.57 * s / (12 * HOUR)) * 2**30),
    )
    engine = judged(tmp_path, story)
    assert [finding["kind"] for finding in engine["findings"]] == ["host_memory_growth"]
    assert not LEAKY & set(states(engine))


# -- looks like a leak and is not ---------------------------------------------------------


def test_frozen_gauges_are_stale_and_the_text_names_the_probe() -> None:
    report, status = analyze(SERIES / "vllm-22545.csv")
    (engine,) = report["engines"]
    assert engine["final"]["state"] == "stale"
    assert "1 token" in said(engine, "stale")
    assert status == 1


@pytest.mark.parametrize(("http", "word"), [(0.5, "hangs"), (0.0, "idle")])
def test_the_request_counter_of_the_server_tells_a_hang_from_silence(
    tmp_path: Path, http: float, word: str
) -> None:
    story = Story().busy(30 * MINUTE)
    story.during(HOUR, running=106, waiting=15, used=7405, http=http)
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "stale"
    assert word in said(engine, "stale")
    assert not {"leak", "leak_suspect", "saturated"} & set(states(engine))


def test_demand_beyond_the_pool_is_saturation() -> None:
    (engine,) = analyze(SERIES / "vllm-27073.csv")[0]["engines"]
    assert engine["final"]["state"] == "saturated"
    assert not LEAKY & set(states(engine))


@pytest.mark.parametrize(
    "name",
    [
        "tt-inference-server-246",
        "vllm-31353",
        "lmcache-419",
        "sglang-11970",
        "sendnn-inference-1030",
        "vllm-37307",
        "vllm-21809-run1",
    ],
)
def test_ordinary_load_raises_nothing(name: str) -> None:
    report, _ = analyze(SERIES / f"{name}.csv")
    assert {state for engine in report["engines"] for state in states(engine)} <= {"ok", "unknown"}


def test_usage_that_rises_while_fewer_requests_run_is_decoding(tmp_path: Path) -> None:
    story = Story().busy(20 * MINUTE)
    story.during(
        10 * MINUTE,
        running=lambda s: 23 - s // 300,
        used=lambda s: 4480 + s * 0.6,
        generation=380,
    )
    assert set(states(judged(tmp_path, story))) <= {"ok", "unknown"}


def test_one_runaway_completion_is_fine(tmp_path: Path) -> None:
    story = Story(pool=1000).idle(20 * MINUTE)
    story.during(10 * MINUTE, running=1, used=lambda s: 33 + s / 10, generation=146)
    story.idle(20 * MINUTE)
    assert set(states(judged(tmp_path, story))) <= {"ok", "unknown"}


def test_a_clean_drain_is_fine(tmp_path: Path) -> None:
    story = Story().during(10 * MINUTE, running=239, used=lambda s: 2400 + s % 70, generation=9000)
    engine = judged(tmp_path, story.idle(20 * MINUTE))
    assert engine["final"]["state"] == "ok"
    assert not LEAKY & set(states(engine))


def test_blocks_that_an_asynchronous_store_holds_are_held_and_never_a_leak(tmp_path: Path) -> None:
    story = Story(connector=1).busy(20 * MINUTE)
    story.idle(20 * MINUTE, used=3277).busy(15 * MINUTE).idle(20 * MINUTE, used=3359)
    engine = judged(tmp_path, story, "--hold-seconds", "1800")
    assert states(engine).count("held_idle") == 2
    assert not LEAKY & set(states(engine))


def test_a_lease_is_held_until_its_cliff(tmp_path: Path) -> None:
    story = Story(connector=1).busy(20 * MINUTE).idle(480, used=900).idle(20 * MINUTE)
    engine = judged(tmp_path, story)
    assert "held_idle" in states(engine)
    assert not LEAKY & set(states(engine))
    assert engine["final"]["state"] == "ok"
    assert "600" in said(engine, "held_idle") or "10 min" in said(engine, "held_idle")


def test_a_hold_without_end_is_suspect_after_the_hold_time(tmp_path: Path) -> None:
    story = Story(connector=1, pool=1000).busy(20 * MINUTE, running=4)
    engine = judged(tmp_path, story.idle(5 * MINUTE, used=846))
    assert engine["final"]["state"] == "held_idle"
    engine = judged(tmp_path, story.idle(15 * MINUTE, used=846))
    assert engine["final"]["state"] in LEAKY


def test_one_stuck_request_that_blocks_admission_is_a_stall(tmp_path: Path) -> None:
    story = Story().busy(30 * MINUTE)
    story.during(
        HOUR,
        running=1,
        waiting=lambda s: 14 + s // 600,
        used=lambda s: 6267 + s / 50,
        generation=5.4,
    )
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "stalled"
    assert "blocked" in said(engine, "stalled")
    assert not LEAKY & set(states(engine))


def test_a_wedge_with_an_empty_cache_is_a_stall(tmp_path: Path) -> None:
    story = Story().busy(30 * MINUTE)
    story.during(9 * MINUTE, running=0, waiting=lambda s: 5 + s // 300, used=0)
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "stalled"
    assert "empty" in said(engine, "stalled")


def test_a_wedge_that_still_trickles_tokens_is_a_stall(tmp_path: Path) -> None:
    story = Story().busy(30 * MINUTE)
    story.during(12 * MINUTE, running=29, waiting=92, used=7373, prompt=1946, generation=5.5)
    story.during(
        HOUR,
        running=lambda s: 3 + (s > 1800),
        waiting=lambda s: 227 + s // 14,
        used=lambda s: 1712 - s / 50,
        prompt=1946,
        generation=0.5,
    )
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "stalled"
    assert not LEAKY & set(states(engine))


def test_the_reported_wedge_is_a_stall_even_without_a_counter() -> None:
    (engine,) = analyze(SERIES / "vllm-53130.csv")[0]["engines"]
    assert engine["final"]["state"] == "stalled"


def test_constant_usage_with_moving_counters_is_not_frozen(tmp_path: Path) -> None:
    story = Story().during(HOUR, running=1, used=37, generation=18)
    assert set(states(judged(tmp_path, story))) <= {"ok", "unknown"}


def test_blocks_freed_a_step_late_are_not_an_idle_floor(tmp_path: Path) -> None:
    story = Story()
    for _ in range(8):
        story.busy(8 * MINUTE).idle(10, used=420).idle(6 * MINUTE)
    assert set(states(judged(tmp_path, story))) <= {"ok", "unknown"}


def test_a_paused_engine_may_hold_what_it_likes(tmp_path: Path) -> None:
    story = Story().busy(30 * MINUTE, sleeping=0).idle(2 * HOUR, used=3000, sleeping=1)
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "paused"
    assert not LEAKY & set(states(engine))


def test_one_block_of_a_big_pool_is_shown_as_a_block(tmp_path: Path) -> None:
    story = Story(pool=102_564).busy(10 * MINUTE).idle(30 * MINUTE, used=1)
    engine = judged(tmp_path, story)
    assert engine["final"]["idle_floor_blocks"] == 1
    assert engine["final"]["state"] == "ok"


def test_more_free_blocks_than_exist_are_untrusted(tmp_path: Path) -> None:
    story = Story().busy(10 * MINUTE).idle(10 * MINUTE, used=-3)
    engine = judged(tmp_path, story)
    assert engine["final"]["state"] == "untrusted"
    assert "free" in said(engine, "untrusted")


def test_counters_of_two_servers_behind_one_address_are_untrusted(tmp_path: Path) -> None:
    story = Story(interval=10)
    for i in range(30):
        story.busy(10, done=0)
        story.rows[-1]["request_prompt_tokens_count"] = (4000 + i) if i % 2 else (8000 + i)
        story.rows[-1]["prompt_tokens_total"] = (400_000 + 9 * i) if i % 2 else (800_000 + 9 * i)
    engine = judged(tmp_path, story)
    assert "untrusted" in states(engine)
    assert "different servers" in said(engine, "untrusted")
