"""The exporter's side of the audit: asked at a port, believed, bounded, a problem when it fails."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube_server import pod
from vllm_shapes import Scheduler, Status

from kvcache_exporter.audits.answers import (
    audit_targets,
    blocks_by_owner,
    fetched,
    mute,
    of_engine,
    parse,
    silent,
)
from kvcache_exporter.discovery import _groups
from kvcache_exporter.discovery._pods import read_pod, targets
from kvcache_exporter.model import Audit, Problem, Scrape, Target
from kvcache_exporter.presets import PRESETS
from kvcache_exporter.vllm_plugin.auditor import Auditor


def report(**changes: Any) -> dict[str, Any]:
    scheduler = Scheduler("0.32.0")
    scheduler.give("a", Status.RUNNING, 10)
    return Auditor(scheduler).report() | changes


def test_what_the_plugin_tells_is_what_is_read() -> None:
    told = report(
        time=5.0, free_blocks=90, orphaned_blocks=0, owners={"running": 10}, cached_blocks=4
    )
    read = parse(json.dumps(told).encode())

    assert read is not None
    assert (read.pid, read.supported, read.time) == (os.getpid(), True, 5.0)
    assert blocks_by_owner(read) == (
        ("orphaned", 0), ("running", 10), ("cached", 4), ("free", 86),
    )  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=40), inner),
)


@given(st.dictionaries(st.sampled_from(sorted(report())), JSON))
def test_any_answer_is_read_within_bounds_or_not_at_all(changes: dict[str, Any]) -> None:
    read = parse(json.dumps(report(**changes)).encode())
    if read is not None:
        assert len(read.engine) <= 16
        assert len(read.reason or "") <= 300
        for name, count in (*read.owners, *read.requests, *read.orphaned_after):
            assert 0 < len(name) <= 32
            assert count >= 0


@given(st.binary(max_size=200))
def test_what_is_no_audit_is_none(body: bytes) -> None:
    assert parse(body) is None


def test_each_engines_audit_listens_at_the_port_plus_its_rank() -> None:
    target = Target("t", "http://[::1]:8000/metrics", auth="x", audit_url="http://[::1]:9400")
    asked = audit_targets(target, ["0", "3", "odd"])

    assert {rank: one.url for rank, one in asked.items()} == {
        "0": "http://[::1]:9400",
        "3": "http://[::1]:9403",
    }
    assert all(one.auth is None for one in asked.values()), "they get no credentials"
    assert audit_targets(replace(target, audit_url="http://a:65535"), ["1"]) == {}


@pytest.mark.parametrize(
    ("scrape", "reason"),
    [
        (Scrape("t", 0.0, 0.1, None, Problem("refused", "nothing listens: start it")), "listens"),
        (Scrape("t", 0.0, 0.1, b"<html>"), "is the port right?"),
    ],
)
def test_an_audit_that_cannot_be_read_becomes_a_problem_that_says_what_to_do(
    scrape: Scrape, reason: str
) -> None:
    [problem] = mute([fetched("0", scrape)])
    assert problem.code == "audit_silent"
    assert reason in problem.text


def test_an_engine_that_the_audit_does_not_know_is_told_apart_from_one_that_is_silent() -> None:
    told = parse(json.dumps(report(supported=False, reason="vLLM has changed inside")).encode())
    assert told is not None
    [problem] = mute([told])
    assert problem.code == "audit_unsupported"
    assert "vLLM has changed inside" in problem.text


def test_an_audit_that_counts_is_preferred_to_one_that_does_not() -> None:
    counting = Audit(1, "0", supported=True)
    assert of_engine([silent("0", "?"), counting], "0", 2) is counting
    assert of_engine([counting], "1", 2) is None
    assert of_engine([Audit(1, "5", supported=True)], "0", 1) is not None


def test_a_pod_that_declares_the_port_is_asked_there() -> None:
    ports = [("http", 8000), ("kvcache-audit", 9400)]
    read = [read_pod(pod("a", "10.0.0.7", ports=ports)), read_pod(pod("b", "10.0.0.8"))]
    found = targets([one for one in read if one], PRESETS.values(), (), None)

    assert [one.audit_url for one in found] == ["http://10.0.0.7:9400", None]


@pytest.mark.parametrize(
    ("address", "port", "url"),
    [
        ("10.0.0.5:8000", "9155", "http://10.0.0.5:9155"),
        ("[fd00::1]:8000", "9155", "http://[fd00::1]:9155"),
        ("10.0.0.5:8000", "99999", None),
        ("10.0.0.5:8000", "", None),
    ],
)
def test_a_list_of_targets_may_name_the_port_on_their_hosts(
    address: str, port: str, url: str | None
) -> None:
    group = [{"targets": [address], "labels": {"__kvcache_audit_port__": port}}]
    [target] = _groups.parse(json.dumps(group), "list.json")
    assert target.audit_url == url
