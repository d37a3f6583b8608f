"""Every way to deploy on Kubernetes is valid, asks for little and fits together."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import textwrap
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from manifests import (
    ADDING,
    CHANGING,
    K8S,
    ROOT,
    Doc,
    build,
    combinations_of_components,
    container,
    kustomize,
    of_kind,
    pod,
    workload,
)
from pod_security import offences

from kvcache_exporter import __version__
from kvcache_exporter.cli import main
from kvcache_exporter.config import load
from kvcache_exporter.urls import DEFAULT_PORT
from kvcache_exporter.web.web_config import load as load_web

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


def test_an_overlay_may_choose_another_namespace():
    docs = build(ADDING + CHANGING, "elsewhere")
    [binding] = of_kind(docs, "ClusterRoleBinding")
    assert [subject["namespace"] for subject in binding["subjects"]] == ["elsewhere"]
    spaces = {doc["metadata"].get("namespace") for doc in docs}
    assert spaces == {"elsewhere", None}
    assert {doc["kind"] for doc in docs if "namespace" not in doc["metadata"]} == {
        "Namespace", "ClusterRole", "ClusterRoleBinding",
    }  # fmt: skip


def test_the_daemon_set_sees_every_gpu_of_its_node():
    docs = build()
    env = {one["name"]: one for one in container(docs)["env"]}
    assert pod(docs)["runtimeClassName"] == "nvidia"
    assert env["NVIDIA_VISIBLE_DEVICES"]["value"] == "all"
    assert env["NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert pod(docs)["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert pod(docs)["priorityClassName"] == ""


def test_nri_asks_by_annotation_instead_of_the_runtime_class():
    docs = build(("nri",))
    annotations = workload(docs)["spec"]["template"]["metadata"]["annotations"]
    key = f"nvidia.cdi.k8s.io/container.{container(docs)['name']}"
    assert annotations[key] == "management.nvidia.com/gpu=all"
    assert "runtimeClassName" not in pod(docs)


def test_dcgm_needs_no_runtime_class_and_switches_nvml_off(tmp_path):
    docs = build(("dcgm",))
    [text] = [doc["data"]["exporter.yml"] for doc in of_kind(docs, "ConfigMap")]
    (tmp_path / "c.yml").write_text(text)
    gpus = load(tmp_path / "c.yml").gpus
    assert gpus["nvml"] == {"enabled": False}
    assert len(gpus["dcgm"]["urls"]) == 1
    assert "runtimeClassName" not in pod(docs)


def test_central_is_one_deployment_in_place_of_the_daemon_set():
    docs = build(("central",))
    assert workload(docs)["kind"] == "Deployment"
    assert workload(docs)["spec"]["replicas"] == 1
    assert workload(docs)["spec"]["strategy"] == {"type": "Recreate"}
    assert not {"runtimeClassName", "nodeSelector", "tolerations"} & pod(docs).keys()


def test_every_shard_takes_another_part():
    spec = workload(build(("central", "shards")))["spec"]
    one = spec["template"]["spec"]["containers"][0]
    [env] = one["env"]
    assert env["valueFrom"]["fieldRef"]["fieldPath"] == (
        "metadata.labels['apps.kubernetes.io/pod-index']"
    )
    assert f"--shard=$({env['name']})/{spec['replicas']}" in one["args"]
    assert spec["serviceName"] == of_kind(build(), "Service")[0]["metadata"]["name"]


def test_tls_files_are_where_the_web_configuration_looks(tmp_path):
    docs = build(("tls",))
    [text] = [d["data"]["web.yml"] for d in of_kind(docs, "ConfigMap") if "web.yml" in d["data"]]
    (tmp_path / "web.yml").write_text(text)
    tls = load_web(tmp_path / "web.yml").tls_server_config
    [web] = [volume for volume in pod(docs)["volumes"] if volume["name"] == "web"]
    [secret] = [one["secret"] for one in web["projected"]["sources"] if "secret" in one]
    assert tls is not None
    assert {tls.cert_file, tls.key_file} == {item["path"] for item in secret["items"]}
    assert "--web-config-file=/etc/kvcache-exporter-web/web.yml" in container(docs)["args"]


def test_tls_reaches_the_monitor_that_is_listed_before_it():
    [monitor] = of_kind(build(("podmonitor", "tls")), "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"


def test_labels_of_the_engine_survive_the_monitor():
    [monitor] = of_kind(build(("podmonitor",)), "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    [dropped] = [
        one["regex"] for one in endpoint["relabelings"] if one.get("action") == "labeldrop"
    ]
    assert endpoint["honorLabels"] is True
    assert endpoint["port"] == "metrics"
    assert all(re.search(dropped, name) for name in ("namespace", "pod"))
    assert not any(re.search(dropped, f"__meta_kubernetes_{name}") for name in ("namespace", "pod"))
    labels = workload(build())["spec"]["template"]["metadata"]["labels"]
    assert labels[monitor["spec"]["jobLabel"]] == "kvcache-exporter"  # what the rules ask for


def test_the_prometheus_rule_is_what_alerting_has():
    path = K8S / "components/prometheusrule/build.py"
    spec = importlib.util.spec_from_file_location("prometheusrule_build", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert path.with_name("prometheus-rule.yaml").read_text() == made.prometheus_rule()
    [rule] = of_kind(build(("prometheusrule",)), "PrometheusRule")
    files = [yaml.safe_load(one.read_text()) for one in sorted(ROOT.glob("alerting/rules/*.yml"))]
    assert rule["spec"]["groups"] == [group for one in files for group in one["groups"]]


def test_every_dashboard_has_a_config_map_that_the_sidecar_finds():
    docs = build(("grafana-dashboards",))
    boards = [
        d for d in of_kind(docs, "ConfigMap") if "grafana_dashboard" in d["metadata"]["labels"]
    ]
    made = {name: text for board in boards for name, text in board["data"].items()}
    assert made == {path.name: path.read_text() for path in ROOT.glob("grafana/dashboards/*.json")}
    for board in boards:
        assert len(board["data"]) == 1
        assert len(json.dumps(board)) < 200 * 1024
        assert re.search(r"-[a-z0-9]{10}$", board["metadata"]["name"]) is None


def test_nothing_floats():
    text = "".join(path.read_text() for path in K8S.rglob("*.yaml"))
    assert ":latest" not in text
    assert f'app.kubernetes.io/version: "{__version__}"' in text


def blocks(document: str) -> list[str]:
    text = (ROOT / "docs" / document).read_text()
    found = re.findall(r"^( *)```yaml\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for _, block in found]


def test_the_documented_overlay_builds(tmp_path):
    [overlay] = [block for block in blocks("kubernetes.md") if "kind: Kustomization" in block]
    [monitors] = [block for block in blocks("kubernetes.md") if block.startswith("patches:")]
    here = os.path.relpath(ROOT, tmp_path.resolve())
    text = overlay.replace("- kvcache-exporter/", f"- {here}/") + monitors
    (tmp_path / "kustomization.yaml").write_text(text)
    docs = kustomize(tmp_path)
    assert container(docs)["image"] == f"registry.example/kvcache-exporter:{__version__}"
    labels = [doc["metadata"]["labels"] for doc in of_kind(docs, *CUSTOM)]
    assert [one["release"] for one in labels] == ["kube-prometheus-stack"] * 2


def test_the_documented_configurations_pass(tmp_path):
    configs = [
        block for block in blocks("kubernetes.md") if re.search(r"^kubernetes:", block, re.M)
    ]
    assert len(configs) == 2
    for text in configs:
        (tmp_path / "exporter.yml").write_text(text)
        load(tmp_path / "exporter.yml")
