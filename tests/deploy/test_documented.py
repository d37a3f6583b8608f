"""What docs/kubernetes.md shows can be copied."""

from __future__ import annotations

import os
import re
import textwrap

from manifests import (
    ROOT,
    container,
    kustomize,
    of_kind,
)

from kvcache_exporter import __version__
from kvcache_exporter.config import load


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
    labels = [doc["metadata"]["labels"] for doc in of_kind(docs, "PodMonitor", "PrometheusRule")]
    assert [one["release"] for one in labels] == ["kube-prometheus-stack"] * 2


def test_the_documented_configurations_pass(tmp_path):
    configs = [
        block for block in blocks("kubernetes.md") if re.search(r"^kubernetes:", block, re.M)
    ]
    assert len(configs) == 2
    for text in configs:
        (tmp_path / "exporter.yml").write_text(text)
        load(tmp_path / "exporter.yml")
