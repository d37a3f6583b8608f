"""The Kubernetes pod security standard *restricted*, as far as a pod of ours could break it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip


def offences(pod: dict[str, Any]) -> Iterator[str]:
    """Everything for which the namespace's label *restricted* would refuse *pod*."""
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(name):
            yield name
    for volume in pod.get("volumes", ()):
        if not VOLUMES & volume.keys():
            yield f"volume {volume['name']}"
    context = pod.get("securityContext", {})
    for one in (*pod["containers"], *pod.get("initContainers", ())):
        yield from _container(context | one.get("securityContext", {}))
        if any("hostPort" in port for port in one.get("ports", ())):
            yield "hostPort"


def _container(context: dict[str, Any]) -> Iterator[str]:
    if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if not context.get("runAsNonRoot") or context.get("runAsUser") == 0:
        yield "runAsNonRoot"
    if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile"
    capabilities = context.get("capabilities", {})
    if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", ())) - {
        "NET_BIND_SERVICE"
    }:
        yield "capabilities"
