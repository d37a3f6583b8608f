"""What each component is for, and that it does it."""

from __future__ import annotations

import importlib.util
import json
import re

import yaml
from manifests import (
    ADDING,
    CHANGING,
    K8S,
    ROOT,
    build,
    container,
    of_kind,
    pod,
    workload,
)

from kvcache_exporter.config import load
from kvcache_exporter.web.web_config import load as load_web


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
