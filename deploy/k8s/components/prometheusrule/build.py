"""Writes prometheus-rule.yaml from alerting/rules; run it again when they have changed."""

from __future__ import annotations

from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
RULES = HERE.parents[3] / "alerting/rules"
NAME = "kvcache-exporter"
HEADER = "# Made by deploy/k8s/components/prometheusrule/build.py from alerting/rules.\n"


def prometheus_rule() -> str:
    """Return all groups of rules as one resource of the Prometheus operator."""
    files = [yaml.safe_load(path.read_text("utf-8")) for path in sorted(RULES.glob("*.yml"))]
    labels = ("name", "instance", "part-of")
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": NAME,
            "namespace": NAME,
            "labels": {f"app.kubernetes.io/{label}": NAME for label in labels},
        },
        "spec": {"groups": [group for file in files for group in file["groups"]]},
    }
    return HEADER + yaml.safe_dump(resource, sort_keys=False, width=2**16, allow_unicode=True)


if __name__ == "__main__":
    (HERE / "prometheus-rule.yaml").write_text(prometheus_rule(), encoding="utf-8")
