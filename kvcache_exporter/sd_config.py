"""What an operator may say about where targets come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvcache_exporter.presets import PRESETS
from kvcache_exporter.schema import suggestion
from kvcache_exporter.urls import url_mistake


@dataclass(frozen=True, slots=True)
class FileSdConfig:
    """Target files in Prometheus' own ``file_sd`` format, JSON or YAML."""

    files: tuple[str, ...]
    refresh_seconds: float = 30.0
    auth: str | None = None

    def mistakes(self) -> Iterable[tuple[str, str]]:
        """Check the suffixes and the interval."""
        for position, name in enumerate(self.files):
            if not name.endswith((".json", ".yml", ".yaml")):
                yield f"files[{position}]", f"must end in .json, .yml or .yaml, not {name!r}"
        if not self.files:
            yield "files", "is empty; name at least one file, * is allowed in its last part"
        if self.refresh_seconds <= 0:
            yield "refresh_seconds", f"must be more than 0, not {self.refresh_seconds:g}"


@dataclass(frozen=True, slots=True)
class HttpSdConfig:
    """A list of targets at an HTTP address, in Prometheus' ``http_sd`` format."""

    url: str
    refresh_seconds: float = 60.0
    auth: str | None = None

    def mistakes(self) -> Iterable[tuple[str, str]]:
        """Check the address and the interval."""
        if (text := url_mistake(self.url)) is not None:
            yield "url", text
        if self.refresh_seconds <= 0:
            yield "refresh_seconds", f"must be more than 0, not {self.refresh_seconds:g}"


@dataclass(frozen=True, slots=True)
class KubernetesConfig:
    """Pods to find through the Kubernetes API; by default those of our own node."""

    node: str = "$NODE_NAME"
    """Node whose pods are wanted; empty = all nodes, for a central exporter."""
    namespaces: tuple[str, ...] = ()
    """Namespaces to look in; empty = all."""
    presets: tuple[str, ...] = ()
    """Kinds of pods to look for; empty = all kinds that are known, or only ``labels``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of pods of your own kind, served at ``port`` (a name or number)."""
    port: str = "8000"
    scheme: str = "http"
    path: str = "/metrics"
    label_selector: str | None = None
    """Narrows what the API server sends, in its own syntax."""
    pod_labels: tuple[str, ...] = ()
    """Pod labels to put on ``kvcache_engine_info``."""
    api_server: str | None = None
    auth: str | None = None

    def mistakes(self) -> Iterable[tuple[str, str]]:
        """Check names against what is known."""
        for position, name in enumerate(self.presets):
            if name not in PRESETS:
                yield f"presets[{position}]", f"{name!r} is unknown{suggestion(name, PRESETS)}"
        if self.scheme not in ("http", "https"):
            yield "scheme", f"must be http or https, not {self.scheme!r}"
        if self.api_server is not None and (text := url_mistake(self.api_server)) is not None:
            yield "api_server", text
