"""From a pod's JSON to a target: a pure function of the pod and the presets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvcache_exporter.model import Role, Target
from kvcache_exporter.presets import ROLE_LABEL, Preset

AUDIT_PORT = "kvcache-audit"
"""Name of the container port at which the audit in a pod's first engine listens."""


@dataclass(frozen=True, slots=True)
class Pod:
    """What is kept of a pod; the rest of its JSON is let go at once."""

    uid: str
    namespace: str
    name: str
    node: str
    address: str
    """Pod IP; empty while it has none."""
    alive: bool
    """Running, and not being deleted."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    ports: tuple[tuple[str, int], ...]
    """(name, number) over all containers; sidecars that run as init containers included."""


def read_pod(data: Mapping[str, Any]) -> Pod | None:
    """Read one item of a pod list; None for anything that is no pod."""
    meta, spec, status = (data.get(key) or {} for key in ("metadata", "spec", "status"))
    if not meta.get("uid") or not meta.get("name"):
        return None
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    ports = tuple(
        (str(port.get("name") or ""), int(port["containerPort"]))
        for container in containers
        for port in container.get("ports") or ()
        if isinstance(port.get("containerPort"), int)
    )
    wanted_annotations = {
        key: str(value)
        for key, value in (meta.get("annotations") or {}).items()
        if key.startswith("prometheus.io/")
    }
    return Pod(
        uid=str(meta["uid"]),
        namespace=str(meta.get("namespace") or "default"),
        name=str(meta["name"]),
        node=str(spec.get("nodeName") or ""),
        address=str(status.get("podIP") or ""),
        alive=status.get("phase") == "Running" and not meta.get("deletionTimestamp"),
        labels={str(k): str(v) for k, v in (meta.get("labels") or {}).items()},
        annotations=wanted_annotations,
        ports=ports,
    )


def targets(
    pods: Iterable[Pod], presets: Iterable[Preset], kept_labels: Iterable[str], auth: str | None
) -> tuple[Target, ...]:
    """Return a target for every living pod that a preset matches, in a stable order.

    Readiness does not matter: an engine that fails its probe is the one to look at.
    """
    presets, kept = tuple(presets), tuple(kept_labels)
    found = []
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        preset = next((preset for preset in presets if matches(pod, preset)), None)
        if pod.alive and pod.address and preset is not None:
            found.append(_target(pod, preset, kept, auth))
    return tuple(found)


def matches(pod: Pod, preset: Preset) -> bool:
    """Whether *pod* is of the kind that *preset* describes."""
    if any(pod.labels.get(name) in values for name, values in preset.without.items()):
        return False
    if any(pod.annotations.get(name) != value for name, value in preset.annotations.items()):
        return False
    return all(
        name in pod.labels and (values is None or pod.labels[name] in values)
        for name, values in preset.labels.items()
    )


def _target(pod: Pod, preset: Preset, kept: tuple[str, ...], auth: str | None) -> Target:
    host = f"[{pod.address}]" if ":" in pod.address else pod.address
    port = _port(pod, preset)
    scheme, path = preset.scheme, preset.path
    if preset.annotations:
        scheme = pod.annotations.get("prometheus.io/scheme", scheme)
        path = pod.annotations.get("prometheus.io/path", path)
    labels = {_label(name): pod.labels[name] for name in kept if name in pod.labels}
    labels |= {"namespace": pod.namespace, "pod": pod.name, "node": pod.node}
    return Target(
        name=f"{pod.namespace}/{pod.name}:{port}",
        url=f"{scheme if scheme == 'https' else 'http'}://{host}:{port}/{path.lstrip('/')}",
        labels=tuple(sorted(labels.items())),
        role=_role(pod.labels.get(ROLE_LABEL)),
        auth=auth,
        guessed=preset.guess,
        audit_url=next((f"http://{host}:{n}" for name, n in pod.ports if name == AUDIT_PORT), None),
    )


def _port(pod: Pod, preset: Preset) -> int:
    annotated = pod.annotations.get("prometheus.io/port", "")
    if preset.annotations and annotated.isascii() and annotated.isdecimal():
        return int(annotated)
    by_name = dict(reversed(pod.ports))
    for port in preset.ports:
        if isinstance(port, str) and port in by_name:
            return by_name[port]
    numbers = {number for _, number in pod.ports}
    wanted = [port for port in preset.ports if isinstance(port, int)]
    return next((port for port in wanted if port in numbers), wanted[-1])


def _role(label: str | None) -> Role:
    return Role(label) if label in (Role.PREFILL, Role.DECODE) else Role.BOTH


def _label(name: str) -> str:
    """Spell a Kubernetes label name as a Prometheus one."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name).lstrip("_0123456789")
