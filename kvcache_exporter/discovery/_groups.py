"""Lists of targets in the form that Prometheus' ``file_sd`` and ``http_sd`` have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kvcache_exporter.config import label_mistake
from kvcache_exporter.model import Role, Target
from kvcache_exporter.schema import OperatorError, build, parse_yaml
from kvcache_exporter.urls import metrics_url, target_name, url_mistake


@dataclass(frozen=True, slots=True)
class Group:
    """One entry of a file: addresses that share their labels."""

    targets: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def parse(text: str, path: str, auth: str | None = None) -> tuple[Target, ...]:
    """Read one file; raise OperatorError with all that is wrong with it."""
    data = parse_yaml(text, path)
    if not isinstance(data, list):
        raise OperatorError([f"{path}: must be a list of groups with targets and labels"])
    groups = [build(Group, item, f"{path}[{i}]") for i, item in enumerate(data)]
    made = [
        _target(address, group, f"{path}[{i}].targets[{j}]", auth)
        for i, group in enumerate(groups)
        for j, address in enumerate(group.targets)
    ]
    mistakes = [line for one in made if isinstance(one, list) for line in one]
    if mistakes:
        raise OperatorError(mistakes)
    return tuple(one for one in made if isinstance(one, Target))


def _target(address: str, group: Group, path: str, auth: str | None) -> Target | list[str]:
    labels = dict(group.labels)
    scheme = labels.pop("__scheme__", "http")
    where = labels.pop("__metrics_path__", "/metrics")
    url = address if "://" in address else f"{scheme}://{address}{where}"
    if (text := url_mistake(url)) is not None:
        return [f"{path}: {text}"]
    role = labels.pop("__kvcache_role__", Role.BOTH)
    if role not in list(Role):
        return [f"{path}: __kvcache_role__ must be one of {', '.join(Role)}, not {role!r}"]
    url = metrics_url(url)
    return Target(
        name=target_name(url),
        url=url,
        # As in Prometheus, labels starting with __ are for the tools that read the file.
        labels=tuple(sorted(p for p in labels.items() if label_mistake(p[0]) is None)),
        role=Role(role),
        hold_seconds=_seconds(labels.get("__kvcache_hold_seconds__")),
        auth=auth,
        audit_url=_audit_url(url, labels.get("__kvcache_audit_port__", "")),
    )


def _audit_url(url: str, port: str) -> str | None:
    """Return the address of an audit on the target's own host."""
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        return None
    host = urlsplit(url).hostname or ""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None
