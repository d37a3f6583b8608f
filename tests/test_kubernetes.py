"""Discovery of pods: whatever the API server does, the target list is right or says its age."""

from __future__ import annotations

from pathlib import Path

import pytest
from kube_server import Cluster, pod
from pod_finder import eventually, following, names, told

from kvcache_exporter.discovery import find_all
from kvcache_exporter.discovery._kube_api import PAGE_LIMIT
from kvcache_exporter.model import Target
from kvcache_exporter.sd_config import KubernetesConfig


def test_pods_appear_move_and_die(tmp_path: Path) -> None:
    cluster = Cluster()
    with following(cluster, tmp_path) as finder:
        cluster.put(pod("a"))
        assert eventually(lambda: names(finder) == {"prod/a:8000"})
        cluster.put(pod("b", "10.0.0.2"))
        assert eventually(lambda: names(finder) == {"prod/a:8000", "prod/b:8000"})
        cluster.put(pod("b", "10.0.0.9"))
        assert eventually(lambda: any("10.0.0.9" in t.url for t in finder.find(0.0).targets))
        cluster.put(pod("b", "10.0.0.9", deleting=True))
        assert eventually(lambda: names(finder) == {"prod/a:8000"})
        cluster.remove(pod("a"))
        assert eventually(lambda: names(finder) == set())


def test_five_thousand_pods_come_in_pages(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.put(*(pod(f"p{i}", f"10.0.{i // 250}.{i % 250}") for i in range(5000)))
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: len(names(finder)) == 5000)

    assert cluster.lists == 5000 // PAGE_LIMIT


def test_only_this_nodes_pods_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-a")
    cluster = Cluster()
    cluster.put(pod("here"), pod("there", node="node-b"))
    with following(cluster, tmp_path, KubernetesConfig()) as finder:
        assert eventually(lambda: names(finder) == {"prod/here:8000"})


def test_only_the_named_namespaces_are_asked_for(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.put(pod("a"), pod("b", namespace="dev"), pod("c", namespace="secret"))
    config = KubernetesConfig(node="", namespaces=("prod", "dev"))
    with following(cluster, tmp_path, config) as finder:
        assert eventually(lambda: names(finder) == {"prod/a:8000", "dev/b:8000"})


def test_a_discovered_target_may_not_be_on_loopback_unless_the_api_is(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.put(pod("a"))
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: bool(finder.find(0.0).targets))
        assert finder.find(0.0).targets[0].discovered is False  # a developer's machine


def test_a_node_is_listed_from_the_servers_cache_and_a_cluster_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_NAME", "node-a")
    for config, version in ((KubernetesConfig(), ["0"]), (KubernetesConfig(node=""), None)):
        cluster = Cluster()
        with following(cluster, tmp_path, config):
            assert eventually(lambda: cluster.watches > 0)  # noqa: B023
        assert cluster.queries[0].get("resourceVersion") == version


def test_without_a_node_name_nothing_is_asked_and_the_fix_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    cluster = Cluster()
    with following(cluster, tmp_path, KubernetesConfig()) as finder:
        assert "spec.nodeName" in told(finder)
    assert cluster.queries == []


def test_targets_stay_until_a_finder_that_was_just_opened_has_its_first_list(
    tmp_path: Path,
) -> None:
    cluster = Cluster(forbid=True)
    cluster.put(pod("a"))
    known = [Target("prod/old:8000", "http://10.0.0.1:8000/metrics")]
    with following(cluster, tmp_path) as finder:
        found = find_all([finder], 0.0, known=known)
        assert (found.targets, found.complete) == (tuple(known), False)
        cluster.forbid = False
        assert eventually(lambda: find_all([finder], 0.0, known=known).complete)
        assert [t.name for t in find_all([finder], 0.0, known=known).targets] == ["prod/a:8000"]


def test_a_pod_whose_labels_change_comes_and_goes(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.put(pod("a", labels={"app": "other"}))
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: cluster.watches > 0)
        assert names(finder) == set()
        cluster.put(pod("a"))
        assert eventually(lambda: names(finder) == {"prod/a:8000"})
        cluster.put(pod("a", labels={"app": "other"}))
        assert eventually(lambda: names(finder) == set())


def test_annotated_pods_are_asked_only_where_the_operator_says_so(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.put(pod("a", labels={}, annotations={"prometheus.io/scrape": "true"}), pod("b"))
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: names(finder) == {"prod/b:8000"})
    config = KubernetesConfig(node="", presets=("annotations",))
    with following(cluster, tmp_path, config) as finder:
        assert eventually(lambda: names(finder) == {"prod/a:8000"})
        assert finder.find(0.0).targets[0].guessed
