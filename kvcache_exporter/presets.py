"""Where vLLM pods are found, stack by stack: labels to look for, and the port that has the metrics.

Read in the charts and manifests of each stack. A pod that matches several presets counts once, by
the first. ``kubernetes.presets`` in the configuration chooses among these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Preset:
    """One kind of pod; a label value of None means that any value will do."""

    labels: Mapping[str, tuple[str, ...] | None]
    ports: tuple[str | int, ...]
    """Names before numbers; the first that the pod declares, else the last number."""
    scheme: str = "http"
    path: str = "/metrics"
    without: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels of pods that look alike but serve no metrics: workers of a multi-node engine."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    guess: bool = False
    """Other servers look the same; such a pod counts once it has shown vLLM series."""
    default: bool = True
    """Looked for where the configuration names no preset."""


_WORKER = {"leaderworkerset.sigs.k8s.io/worker-index": tuple(map(str, range(1, 64)))}

PRESETS: Mapping[str, Preset] = {
    "production-stack": Preset(
        {"app.kubernetes.io/component": ("serving-engine",)},
        ("container-port", 8000),
        without=_WORKER,
    ),
    "kserve-llm": Preset(
        {
            "app.kubernetes.io/part-of": ("llminferenceservice",),
            "app.kubernetes.io/component": (
                "llminferenceservice-workload",
                "llminferenceservice-workload-prefill",
                "llminferenceservice-workload-leader",
                "llminferenceservice-workload-leader-prefill",
            ),
        },
        ("https", "http", 8000),
        scheme="https",
        without=_WORKER,
    ),
    "kserve": Preset(
        {"serving.kserve.io/inferenceservice": None}, ("http1", 8080), without=_WORKER, guess=True
    ),
    "llm-d": Preset(
        {"llm-d.ai/role": ("both", "decode", "prefill")},
        ("metrics", "modelserver", 8000),
        without=_WORKER,
    ),
    "llm-d-modelservice": Preset(
        {"llm-d.ai/inference-serving": ("true", "True")}, ("metrics", 8000), without=_WORKER
    ),
    "aibrix": Preset(
        {"model.aibrix.ai/engine": ("vllm",)}, ("metrics", "http", 8000), without=_WORKER
    ),
    "dynamo": Preset(
        {"nvidia.com/dynamo-component": ("VllmDecodeWorker", "VllmPrefillWorker")}, ("system", 9090)
    ),
    "ray": Preset({"ray.io/node-type": ("head", "worker")}, ("metrics", 8080), guess=True),
    "lws": Preset(
        {"leaderworkerset.sigs.k8s.io/worker-index": ("0",)}, ("http", "metrics", 8000), guess=True
    ),
    "vllm": Preset({"app": ("vllm", "vllm-server")}, ("http", "metrics", 8000), without=_WORKER),
    "vllm-name": Preset(
        {"app.kubernetes.io/name": ("vllm",)}, ("http", "metrics", 8000), without=_WORKER
    ),
    # Not by default: every exporter of the cluster has this annotation and would be asked.
    "annotations": Preset(
        {},
        (8000,),
        annotations={"prometheus.io/scrape": "true"},
        without=_WORKER,
        guess=True,
        default=False,
    ),
}
ROLE_LABEL = "llm-d.ai/role"
