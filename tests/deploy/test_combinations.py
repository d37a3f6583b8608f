"""Every way to deploy on Kubernetes is valid, asks for little and fits together."""

from __future__ import annotations

import json
from pathlib import Path

import kubernetes_validate
import pytest
from click.testing import CliRunner
from manifests import (
    K8S,
    Doc,
    build,
    combinations_of_components,
    container,
    of_kind,
    pod,
    workload,
)
from pod_security import offences

from kvcache_exporter import __version__
from kvcache_exporter.cli import main
from kvcache_exporter.config import load
from kvcache_exporter.urls import DEFAULT_PORT

CUSTOM = {"PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, which Kubernetes' own schemas do not hold."""
VERSIONS = sorted(
    version
    for folder in Path(kubernetes_validate.__file__).parent.glob("*/v1.*-local-strict")
    if int((version := folder.name.split("-")[0].removeprefix("v")).split(".")[1]) >= 32
)
EVERYWHERE = pytest.mark.parametrize(
    "components", tuple(combinations_of_components()), ids=lambda names: "+".join(names) or "base"
)
SELECTOR = {
    "app.kubernetes.io/name": "kvcache-exporter",
    "app.kubernetes.io/instance": "kvcache-exporter",
}
_valid: set[tuple[str, str]] = set()


def validate(doc: Doc) -> None:
    for version in VERSIONS:
        key = (version, json.dumps(doc))
        if key not in _valid:  # most documents are the same in most combinations
            kubernetes_validate.validate(doc, version, strict=True)
            _valid.add(key)


def test_there_are_several_versions_of_kubernetes_to_be_valid_for():
    assert len(VERSIONS) >= 6


@EVERYWHERE
def test_every_combination_is_valid_and_consistent(components):
    docs = build(components)
    for doc in docs:
        if doc["kind"] not in CUSTOM:
            validate(doc)
    names = [(doc["kind"], doc["metadata"]["name"]) for doc in docs]
    assert len(set(names)) == len(names)
    assert all("app.kubernetes.io/part-of" in doc["metadata"]["labels"] for doc in docs)
    _names_lead_somewhere(docs)
    _selectors_match(docs)


def _names_lead_somewhere(docs: tuple[Doc, ...]) -> None:
    """Each ConfigMap that is mounted exists, and each mount has its volume."""
    made = {doc["metadata"]["name"] for doc in of_kind(docs, "ConfigMap")}
    volumes = pod(docs)["volumes"]
    sources = [
        one
        for volume in volumes
        for one in (volume, *volume.get("projected", {}).get("sources", ()))
    ]
    assert {one["configMap"]["name"] for one in sources if "configMap" in one} <= made
    mounted = {mount["name"] for mount in container(docs)["volumeMounts"]}
    assert mounted == {volume["name"] for volume in volumes}
    [account] = of_kind(docs, "ServiceAccount")
    assert pod(docs)["serviceAccountName"] == account["metadata"]["name"]


def _selectors_match(docs: tuple[Doc, ...]) -> None:
    spec = workload(docs)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    selectors = [spec["selector"]["matchLabels"]]
    selectors += [doc["spec"]["selector"] for doc in of_kind(docs, "Service")]
    selectors += [
        doc["spec"]["podSelector"]["matchLabels"] for doc in of_kind(docs, "NetworkPolicy")
    ]
    selectors += [doc["spec"]["selector"]["matchLabels"] for doc in of_kind(docs, "PodMonitor")]
    assert all(selector == SELECTOR for selector in selectors)  # no version: it cannot be changed
    assert labels.items() >= SELECTOR.items()


@EVERYWHERE
def test_only_process_attribution_needs_more_than_restricted_pod_security(components):
    docs = build(components)
    [namespace] = of_kind(docs, "Namespace")
    level = namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    found = set(offences(pod(docs)))
    if "process-attribution" in components and "central" not in components:
        assert found == {"hostPID", "runAsNonRoot", "capabilities"}
    else:
        assert found == set()
    assert level == ("privileged" if "process-attribution" in components else "restricted")
    assert container(docs)["securityContext"]["readOnlyRootFilesystem"] is True


@EVERYWHERE
def test_probes_ask_for_the_process_alone(components):
    docs = build(components)
    one = container(docs)
    scheme = "HTTPS" if "tls" in components else "HTTP"
    for name, path in {
        "startupProbe": "/-/healthy", "livenessProbe": "/-/healthy", "readinessProbe": "/-/ready",
    }.items():  # fmt: skip
        get = one[name]["httpGet"]
        assert (get["path"], get["port"], get.get("scheme", "HTTP")) == (path, "metrics", scheme)
    assert one["livenessProbe"]["failureThreshold"] >= 3
    assert one["ports"] == [{"name": "metrics", "containerPort": DEFAULT_PORT}]


@EVERYWHERE
def test_the_image_is_this_version_and_no_gpu_is_taken(components):
    one = container(build(components))
    assert one["image"] == f"kvcache-exporter:{__version__}"
    assert set(one["resources"]["limits"]) == {"memory"}
    assert set(one["resources"]["requests"]) == {"cpu", "memory"}


@EVERYWHERE
def test_the_configuration_passes_check_config(components, tmp_path):
    docs = build(components)
    texts = [
        doc["data"]["exporter.yml"]
        for doc in of_kind(docs, "ConfigMap")
        if "exporter.yml" in doc["data"]
    ]
    assert texts
    for text in texts:
        (tmp_path / "exporter.yml").write_text(text)
        done = CliRunner().invoke(main, ["check-config", str(tmp_path / "exporter.yml")])
        assert done.exit_code == 0, done.output
        config = load(tmp_path / "exporter.yml")
        assert config.listen_address == f":{DEFAULT_PORT}"
        [state] = [m["mountPath"] for m in container(docs)["volumeMounts"] if m["name"] == "state"]
        assert Path(config.state_file or "").parent == Path(state)


@EVERYWHERE
def test_rights_are_to_look_at_pods(components):
    docs = build(components)
    [role] = of_kind(docs, "ClusterRole", "Role")
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]
    [account] = of_kind(docs, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    assert of_kind(docs, "Secret") == []


def test_nothing_floats():
    text = "".join(path.read_text() for path in K8S.rglob("*.yaml"))
    assert ":latest" not in text
    assert f'app.kubernetes.io/version: "{__version__}"' in text
