"""Whatever the API server does, the last list stands, the reason is told, nothing spins."""

from __future__ import annotations

import threading
from pathlib import Path

import kube_server
import pytest
from kube_server import Cluster, pod
from pod_finder import Pauses, eventually, following, names, soon, told

from kvcache_exporter.discovery import _kube_api
from kvcache_exporter.discovery._kube_api import Api
from kvcache_exporter.discovery.kubernetes import LONGEST_PAUSE_SECONDS, Kubernetes
from kvcache_exporter.sd_config import KubernetesConfig


def test_a_history_that_was_compacted_away_is_listed_anew_without_ado(tmp_path: Path) -> None:
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


def test_a_watch_that_died_silently_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kube_api, "WATCH_SECONDS", 0.5 - _kube_api.WATCH_GRACE_SECONDS)
    cluster = Cluster(dead_watches=True)
    cluster.put(pod("a"))
    with following(cluster, tmp_path) as finder:
        assert eventually(lambda: names(finder) == {"prod/a:8000"} and cluster.watches > 0)
        cluster.dead_watches = False
        cluster.put(pod("b"))
        assert eventually(lambda: names(finder) == {"prod/a:8000", "prod/b:8000"})


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
