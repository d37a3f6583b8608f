"""What ``kubectl kustomize`` makes of the base and any components, as parsed documents."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
K8S = ROOT / "deploy/k8s"
Doc = dict[str, Any]

COMPONENTS = {
    path.parent.name: yaml.safe_load(path.read_text())
    for path in sorted(K8S.glob("components/*/kustomization.yaml"))
}
CHANGING = tuple(name for name, one in COMPONENTS.items() if "patches" in one)
"""Components that change others' resources; what they do together has to be seen together."""
ADDING = tuple(name for name in COMPONENTS if name not in CHANGING)


def combinations_of_components() -> Iterator[tuple[str, ...]]:
    """Nothing, each alone, and all that add with every combination of those that change."""
    yield ()
    yield from ((name,) for name in COMPONENTS)
    for count in range(len(CHANGING) + 1):
        for chosen in combinations(CHANGING, count):
            if "central" in chosen or "shards" not in chosen:  # shards are of the central one
                yield ADDING + chosen


@cache
def build(components: tuple[str, ...] = (), namespace: str = "") -> tuple[Doc, ...]:
    """Build as a user does, from an overlay in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        overlay: Doc = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [_from(folder, K8S / "base")],
            "components": [_from(folder, K8S / "components" / name) for name in components],
        }
        if namespace:
            overlay["namespace"] = namespace
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        return kustomize(Path(folder))


def kustomize(folder: Path) -> tuple[Doc, ...]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing, and Debian has none: see kubernetes.io/docs/tasks/tools")
    done = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr
    return tuple(yaml.load_all(done.stdout, yaml.CSafeLoader))  # 3,000 lines, 50 times


def _from(folder: str, path: Path) -> str:
    """Kustomize takes no absolute paths."""
    return os.path.relpath(path, Path(folder).resolve())


def of_kind(docs: tuple[Doc, ...], *kinds: str) -> list[Doc]:
    return [doc for doc in docs if doc["kind"] in kinds]


def workload(docs: tuple[Doc, ...]) -> Doc:
    """The one thing that runs pods."""
    [found] = of_kind(docs, "DaemonSet", "Deployment", "StatefulSet")
    return found


def pod(docs: tuple[Doc, ...]) -> Doc:
    return workload(docs)["spec"]["template"]["spec"]


def container(docs: tuple[Doc, ...]) -> Doc:
    [found] = pod(docs)["containers"]
    return found
