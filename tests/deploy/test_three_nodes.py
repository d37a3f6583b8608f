"""A fleet over three nodes, with the real Prometheus and the real rules."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import ADDRESSES, Nodes, wait_until

ENGINES = "count by (namespace, pod, target, engine) (kvcache_used_blocks)"
QUIET_SECONDS = 5.0
"""Several evaluations, in which a second alert would come."""


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    running = Nodes(tmp_path, monkeypatch)
    yield running
    running.close()


def pods_seen_once(nodes: Nodes) -> set[str]:
    """Pods of all engines; raises where one is told twice."""
    found = nodes.query(ENGINES)
    assert all(count == 1.0 for _, count in found), found
    assert all(labels["namespace"] == "prod" for labels, _ in found), found
    return {labels["pod"] for labels, _ in found}


def only_alert(nodes: Nodes) -> dict[str, str]:
    wait_until(nodes.alerts, "an alert fires")
    time.sleep(QUIET_SECONDS)
    [alert] = nodes.alerts()
    return alert


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_engine_is_seen_once_and_a_death_is_told_once(nodes: Nodes) -> None:
    everybody = {f"{node}-{number}" for node in ADDRESSES for number in (0, 1)}
    wait_until(lambda: pods_seen_once(nodes) == everybody, "all engines are seen")
    wait_until(lambda: nodes.alerts() == [], "nothing fires once all are up")
    exporters = nodes.query("count by (instance) (kvcache_used_blocks)")
    assert sorted(count for _, count in exporters) == [2.0, 2.0, 2.0]  # each its own node's

    nodes.kill_pod("node-a-0")
    alert = only_alert(nodes)
    assert (alert["alertname"], alert["pod"]) == ("KVCacheTargetDown", "node-a-0")
    nodes.evict("node-a-0")
    wait_until(lambda: nodes.alerts() == [], "the alert ends with the pod")

    nodes.kill_node("node-c")
    alert = only_alert(nodes)
    assert alert["alertname"] == "KVCacheExporterDown"
    assert alert["instance"].startswith(ADDRESSES["node-c"])

    nodes.start_pod("moved-0", "node-a")
    expected = {"node-a-1", "node-b-0", "node-b-1", "moved-0"}
    wait_until(lambda: pods_seen_once(nodes) == expected, "the pod that moved is seen once")
