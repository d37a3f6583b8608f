"""From a pod to a target: which pods count, at which address, under which name."""

from __future__ import annotations

import kube_server
import pytest
from kube_server import pod

from kvcache_exporter.discovery._pods import read_pod, targets
from kvcache_exporter.model import Role, Target
from kvcache_exporter.presets import PRESETS


def made(*pods: kube_server.Json, presets: tuple[str, ...] = ()) -> tuple[Target, ...]:
    read = [one for data in pods if (one := read_pod(data)) is not None]
    chosen = [PRESETS[name] for name in presets or PRESETS]
    return targets(read, chosen, ("team",), None)


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
