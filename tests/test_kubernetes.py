"""Discovery of pods: whatever the API server does, the target list is right or says its age."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kube_server
import pytest
from kube_server import Cluster, pod

from kvcache_exporter.discovery import find_all
from kvcache_exporter.discovery._kube_api import PAGE_LIMIT, Api
from kvcache_exporter.discovery._pods import read_pod, targets
from kvcache_exporter.discovery.kubernetes import LONGEST_PAUSE_SECONDS, Kubernetes
from kvcache_exporter.model import Role, Target
from kvcache_exporter.presets import PRESETS
from kvcache_exporter.sd_config import KubernetesConfig


def soon(event: threading.Event, _: float) -> bool:
    """Make every back-off short."""
    return event.wait(0.02)


class Pauses(list[float]):
    """Writes down how long each pause would have been, and makes all of them short."""

    def __call__(self, event: threading.Event, seconds: float) -> bool:
        self.append(seconds)
        return event.wait(0.005)


@contextmanager
def following(
    cluster: Cluster,
    folder: Path,
    config: KubernetesConfig | None = None,
    pause: Callable[[threading.Event, float], bool] = soon,
) -> Iterator[Kubernetes]:
    with kube_server.serve(cluster, folder) as url:
        finder = Kubernetes(config or KubernetesConfig(node=""), Api(url, folder), pause=pause)
        try:
            yield finder
        finally:
            finder.close()


def eventually(check: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.02)
    return False


def names(finder: Kubernetes) -> set[str]:
    return {target.name for target in finder.find(0.0).targets}


def told(finder: Kubernetes) -> str:
    return "".join(problem.text for problem in finder.find(0.0).problems)


def made(*pods: kube_server.Json, presets: tuple[str, ...] = ()) -> tuple[Target, ...]:
    read = [one for data in pods if (one := read_pod(data)) is not None]
    chosen = [PRESETS[name] for name in presets or PRESETS]
    return targets(read, chosen, ("team",), None)


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


def test_a_history_that_was_compacted_away_is_listed_anew_at_once(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.put(pod("a"))
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: names(finder) == {"prod/a:8000"} and cluster.watches > 0)
        cluster.pods.clear()
        cluster.pods["new"] = pod("new", uid="new")
        cluster.compact()
        assert eventually(lambda: names(finder) == {"prod/new:8000"})
        assert finder.find(0.0).problems == ()


def test_a_watch_that_drops_in_the_middle_of_a_line_loses_nothing(tmp_path: Path) -> None:
    cluster = Cluster(drop_watches=True)
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: cluster.watches > 0)
        cluster.put(pod("a"))
        assert eventually(lambda: names(finder) == {"prod/a:8000"})


def test_a_refusal_keeps_the_last_list_says_its_age_and_the_fix(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.put(pod("a"))
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: names(finder) == {"prod/a:8000"})
        cluster.forbid = True
        cluster.compact()
        assert eventually(lambda: bool(finder.find(0.0).problems))
        [problem] = finder.find(0.0).problems

        assert names(finder) == {"prod/a:8000"}
        assert "pods get, list, watch" in problem.text
        assert "(pods as of 0 s ago)" in problem.text
        cluster.forbid = False
        assert eventually(lambda: finder.find(0.0).problems == ())


def test_a_rotated_token_is_read_anew(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.put(pod("a"))
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: names(finder) == {"prod/a:8000"})
        cluster.token = "second"
        cluster.put(pod("b"))
        cluster.compact()
        assert eventually(lambda: "fresh" in "".join(p.text for p in finder.find(0.0).problems))
        (tmp_path / "token").write_text("second\n")
        assert eventually(lambda: names(finder) == {"prod/a:8000", "prod/b:8000"})
        assert finder.find(0.0).problems == ()


def test_an_api_server_that_is_away_is_a_problem_and_no_exception(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    finder = Kubernetes(KubernetesConfig(node=""), Api("http://127.0.0.1:9", tmp_path), pause=soon)
    assert eventually(lambda: "cannot reach" in "".join(p.text for p in finder.find(0.0).problems))
    finder.close()


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


def test_a_server_that_has_always_forgotten_is_asked_ever_less_often(tmp_path: Path) -> None:
    cluster = Cluster(oldest=10**9)
    cluster.put(pod("a"))
    pauses = Pauses()
    with following(cluster, tmp_path, pause=pauses) as finder:
        assert eventually(lambda: len(pauses) > 8)
        assert names(finder) == {"prod/a:8000"}
        assert eventually(lambda: "410" in told(finder))

    assert pauses[0] <= 1.0
    assert all(pause >= 16.0 for pause in pauses[6:])
    assert max(pauses) <= LONGEST_PAUSE_SECONDS


def test_watches_that_end_at_once_are_not_asked_for_without_a_pause(tmp_path: Path) -> None:
    cluster = Cluster(end_watches=True)
    pauses = Pauses()
    with following(cluster, tmp_path, pause=pauses):
        assert eventually(lambda: len(pauses) > 7)

    assert pauses[6] >= 16.0
    assert cluster.lists == 1


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


def test_a_token_that_is_not_mounted_is_told_with_the_fix(tmp_path: Path) -> None:
    finder = Kubernetes(KubernetesConfig(node=""), Api("http://127.0.0.1:9", tmp_path), pause=soon)
    assert eventually(lambda: "automountServiceAccountToken" in told(finder))
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    assert eventually(lambda: "automountServiceAccountToken" in told(finder))
    finder.close()


@pytest.mark.parametrize(
    "answer", [b"{}", b"[]", b"null", b"<html>", b'{"items": []}', b'{"items": 1, "metadata": {}}']
)
def test_an_answer_that_is_no_list_empties_nothing(tmp_path: Path, answer: bytes) -> None:
    cluster = Cluster()
    cluster.put(pod("a"))
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: names(finder) == {"prod/a:8000"} and cluster.watches > 0)
        cluster.nonsense = answer
        cluster.compact()
        assert eventually(lambda: "no list of pods" in told(finder))
        assert names(finder) == {"prod/a:8000"}


def test_an_item_that_nobody_expects_is_told_and_does_not_end_the_thread(tmp_path: Path) -> None:
    cluster = Cluster(nonsense=b'{"items": [1], "metadata": {"resourceVersion": "7"}}')
    cluster.put(pod("a"))
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: "internal error" in told(finder))
        cluster.nonsense = b""
        assert eventually(lambda: names(finder) == {"prod/a:8000"} and told(finder) == "")


def test_an_event_without_an_end_is_not_kept_in_memory(tmp_path: Path) -> None:
    cluster = Cluster(huge_event=True)
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: "larger than" in told(finder))
        cluster.huge_event = False
        cluster.put(pod("a"))
        assert eventually(lambda: names(finder) == {"prod/a:8000"})


def test_a_reload_leaves_no_thread_behind(tmp_path: Path) -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("pods ")}

    before = threads()  # of tests whose server is gone
    cluster = Cluster()
    with kube_server.serve(cluster, tmp_path) as url:
        for number in range(1, 6):
            finder = Kubernetes(KubernetesConfig(node=""), Api(url, tmp_path))
            assert eventually(lambda: cluster.watches >= number)  # noqa: B023
            finder.close()
        assert eventually(lambda: not threads() - before)


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


def test_a_pod_that_is_not_ready_is_scraped_all_the_same() -> None:
    assert len(made(pod("a", ready=False))) == 1


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed", "Unknown"])
def test_a_pod_that_does_not_run_is_not_scraped(phase: str) -> None:
    assert made(pod("a", phase=phase)) == ()
    assert made(pod("a", address="")) == ()


def test_ipv6_addresses_get_brackets() -> None:
    assert made(pod("a", "fd00::7"))[0].url == "http://[fd00::7]:8000/metrics"


def test_namespace_pod_node_and_chosen_labels_come_along() -> None:
    [target] = made(pod("a", labels={"app": "vllm", "team": "search", "other": "x"}))
    assert dict(target.labels) == {
        "namespace": "prod", "pod": "a", "node": "node-a", "team": "search",
    }  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_finds_its_own_pod_once(name: str) -> None:
    preset = PRESETS[name]
    labels = {key: values[0] if values else "x" for key, values in preset.labels.items()}
    found = made(pod("a", labels=labels, annotations=dict(preset.annotations), ports=[("x", 1)]))

    assert len(found) == 1
    assert found[0].url.startswith(f"{preset.scheme}://127.0.0.1:")


def test_workers_of_a_multi_node_engine_are_left_out() -> None:
    index = "leaderworkerset.sigs.k8s.io/worker-index"
    leader = pod("l-0", labels={"app": "vllm", index: "0"})
    worker = pod("l-0-1", labels={"app": "vllm", index: "1"})

    assert [target.name for target in made(leader, worker)] == ["prod/l-0:8000"]


def test_a_port_is_found_by_name_before_number() -> None:
    labels = {"llm-d.ai/role": "decode"}
    ports = [("sidecar", 8000), ("metrics", 8200)]
    [target] = made(pod("a", labels=labels, ports=ports))

    assert target.url.endswith(":8200/metrics")
    assert target.role is Role.DECODE


def test_annotations_say_port_path_and_scheme() -> None:
    annotations = {
        "prometheus.io/scrape": "true", "prometheus.io/port": "9999",
        "prometheus.io/path": "/custom", "prometheus.io/scheme": "https",
    }  # fmt: skip
    [target] = made(pod("a", labels={}, annotations=annotations), presets=("annotations",))

    assert target.url == "https://127.0.0.1:9999/custom"


@pytest.mark.parametrize(
    "data", [{}, {"metadata": {}}, {"metadata": {"name": "x"}}, {"spec": None}]
)
def test_what_is_no_pod_is_left_out(data: kube_server.Json) -> None:
    assert read_pod(data) is None
