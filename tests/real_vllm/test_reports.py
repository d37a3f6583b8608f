"""What a healthy hour and paired turns are made of; needs no vLLM."""

from __future__ import annotations

import json
from typing import Any

import pytest
from healthy_report import result
from healthy_report import table as hour_table
from server import ROOT
from throughput_report import compared, outer_rank
from throughput_report import table as throughput_table

DOCUMENT = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
DATA = ROOT / "tests" / "data"
ANSWER = {
    "age_seconds": 0.1, "orphaned": 0, "ghosts": 0, "settled": 0, "unaccounted": 0,
    "running": 8, "waiting": 1,
}  # fmt: skip
LOOK = {
    "steps": 40, "finish": 3, "abort": 2, "preemption": 1, "free": 5, "referenced": 90, "pool": 95,
}  # fmt: skip


def told(
    change: dict[str, Any] | None = None,
    look: dict[str, Any] | None = None,
    unanswered: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    answers = [ANSWER | {"time": float(at)} for at in range(5)] + [ANSWER | {"time": 4.0}]
    answers[2] |= change or {}
    return result(answers + (unanswered or []), [LOOK, LOOK | (look or {})])


def test_a_healthy_hour_has_nothing_wrong() -> None:
    healthy = told()
    assert healthy["wrong"] == []
    assert (healthy["samples"], healthy["asks"], healthy["seconds"]) == (5, 6, 4)
    assert healthy["longest_time_between_samples_seconds"] == 1.0


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"orphaned": 1}, "samples_with_orphaned_blocks"),
        ({"ghosts": 1}, "samples_with_ghost_blocks"),
        ({"settled": 1}, "samples_with_settled_blocks"),
        ({"unaccounted": -1}, "samples_that_do_not_add_up"),
        ({"running": 0}, "samples_of_an_idle_engine"),
    ],
)
def test_one_sample_that_is_not_as_it_must_be_is_found(change: dict[str, Any], wrong: str) -> None:
    assert told(change)["wrong"] == [wrong]


@pytest.mark.parametrize(
    ("look", "wrong"),
    [
        ({"referenced": 89}, "engine_looks_that_do_not_add_up"),
        ({"abort": 0}, "no abort"),
        ({"preemption": 0}, "no preemption"),
    ],
)
def test_what_the_engine_counts_itself_is_held_too(look: dict[str, Any], wrong: str) -> None:
    assert told(look=look)["wrong"] == [wrong]


def test_an_ask_without_an_answer_is_kept_with_its_reason() -> None:
    failed = {"time": 2.0, "reason": "it does not answer", "load": "9.1 8 7", "stacks": "..."}
    found = told(unanswered=[failed])
    assert found["unanswered"] == [{key: failed[key] for key in ("time", "reason", "load")}]
    assert (found["asks"], found["samples"], found["wrong"]) == (7, 5, [])


def test_half_a_minute_without_a_sample_is_not_an_hour_watched() -> None:
    assert told({"time": 40.0})["wrong"] == ["not seen all the time"]


@pytest.mark.parametrize(("count", "rank"), [(1, 0), (5, 0), (6, 0), (9, 1), (20, 5), (40, 13)])
def test_the_interval_of_a_median_leaves_out_as_many_as_the_sign_test_allows(
    count: int, rank: int
) -> None:
    """As in the tables of confidence limits for the median."""
    assert outer_rank(count) == rank


def test_pairs_are_compared_by_their_own_ratio_whatever_the_machine_does() -> None:
    slow = [{"with": 50.0, "without": 50.0}] * 8
    fast = [{"with": 99.0, "without": 100.0}] * 12
    told = compared(slow + fast)
    assert (told["ratio"], told["interval"]) == (0.99, [0.99, 1.0])


def test_the_hour_that_is_documented_was_one_and_healthy() -> None:
    hour = json.loads((DATA / "healthy-hour.json").read_text())
    assert hour["seconds"] >= 3590
    assert hour["wrong"] == []
    assert hour_table(hour) in DOCUMENT


def test_the_documented_throughput_is_what_was_measured() -> None:
    measured = json.loads((DATA / "audit-throughput.json").read_text())
    assert throughput_table(measured) in DOCUMENT
