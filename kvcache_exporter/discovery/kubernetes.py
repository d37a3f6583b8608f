"""vLLM pods of this node, or of some namespaces, followed by list and watch in a thread."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kvcache_exporter.config import Config
from kvcache_exporter.discovery import Finder, Found
from kvcache_exporter.discovery._kube_api import Api, ApiError
from kvcache_exporter.discovery._pods import Pod, read_pod, targets
from kvcache_exporter.model import Problem, Target
from kvcache_exporter.presets import PRESETS, Preset
from kvcache_exporter.sd_config import KubernetesConfig
from kvcache_exporter.urls import is_loopback

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 60.0
GONE = 410


@dataclass(slots=True)
class _View:
    """The pods below one path of the API as last known."""

    path: str
    pods: dict[str, Pod]
    version: str = ""


class Kubernetes:
    """Follows pods; what it knows stays when the API is away, and its age is told."""

    def __init__(
        self,
        config: KubernetesConfig,
        api: Api,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._config = config
        self._api = api
        self._clock = clock
        self._pause = pause
        self._presets = tuple(_chosen(config))
        # An API server on loopback is a developer's own; its pods may be on loopback too.
        self._on_loopback = is_loopback(api.url)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._views = [_View(path, {}) for path in _paths(config)]
        self._problems: dict[str, tuple[str, float]] = {}
        self._targets: tuple[Target, ...] | None = None
        for view in self._views:
            name = f"pods {view.path}"
            threading.Thread(target=self._follow, args=(view,), name=name, daemon=True).start()

    def find(self, now: float) -> Found:
        """Return the targets as known at this moment."""
        with self._lock:
            if self._targets is None:
                pods = (pod for view in self._views for pod in view.pods.values())
                kept, auth = self._config.pod_labels, self._config.auth
                found = targets(pods, self._presets, kept, auth)
                self._targets = tuple(replace(t, discovered=not self._on_loopback) for t in found)
            told = [
                Problem("kubernetes", f"{text} (pods as of {self._clock() - since:.0f} s ago)")
                for text, since in self._problems.values()
            ]
            return Found(self._targets, tuple(told))

    def close(self) -> None:
        """Ask the threads to end; nobody waits for a watch to time out."""
        self._stop.set()

    def _follow(self, view: _View) -> None:
        """List, then watch, for ever; start over at once when a watch is too old to go on."""
        failures = 0
        while not self._stop.is_set():
            try:
                if not view.version:
                    self._list(view)
                for _ in self._watch(view):
                    failures = 0
                    if self._stop.is_set():
                        return
                failures = 0
            except ApiError as error:
                view.version = ""
                if error.status == GONE:
                    continue
                failures += 1
                self._failed(view, str(error))
                pause = min(LONGEST_PAUSE_SECONDS, 2.0**failures) * random.uniform(0.5, 1.0)  # noqa: S311
                self._pause(self._stop, pause)

    def _list(self, view: _View) -> None:
        items, version = self._api.list_pods(view.path, _selector(self._config))
        pods = [pod for item in items if (pod := read_pod(item)) is not None]
        with self._lock:
            view.pods = {pod.uid: pod for pod in pods}
            view.version = version
            self._targets = None
            self._problems.pop(view.path, None)

    def _watch(self, view: _View) -> Iterator[None]:
        for event in self._api.watch_pods(view.path, _selector(self._config), view.version):
            pod = read_pod(event.pod)
            with self._lock:
                if pod is not None and event.kind == "DELETED":
                    view.pods.pop(pod.uid, None)
                    self._targets = None
                elif pod is not None and event.kind != "BOOKMARK" and view.pods.get(pod.uid) != pod:
                    view.pods[pod.uid] = pod
                    self._targets = None
                view.version = event.version or view.version
                self._problems.pop(view.path, None)
            yield

    def _failed(self, view: _View, text: str) -> None:
        with self._lock:
            since = self._problems.get(view.path, ("", self._clock()))[1]
            self._problems[view.path] = (text, since)


def _paths(config: KubernetesConfig) -> list[str]:
    if not config.namespaces:
        return ["/api/v1/pods"]
    return [f"/api/v1/namespaces/{name}/pods" for name in config.namespaces]


def _selector(config: KubernetesConfig) -> dict[str, str]:
    node = os.environ.get("NODE_NAME", "") if config.node == "$NODE_NAME" else config.node
    fields = {"fieldSelector": f"spec.nodeName={node}"} if node else {}
    return fields | ({"labelSelector": config.label_selector} if config.label_selector else {})


def _chosen(config: KubernetesConfig) -> Iterator[Preset]:
    if config.labels:
        labels = {name: (value,) for name, value in config.labels.items()}
        port: str | int = int(config.port) if config.port.isdecimal() else config.port
        yield Preset(labels, (port, 8000), config.scheme, config.path)
    for name in config.presets or (() if config.labels else tuple(PRESETS)):
        yield PRESETS[name]


def open_all(config: Config) -> list[Finder]:
    """Open one finder for each entry of the configuration."""
    return [Kubernetes(one, _api(one)) for one in config.kubernetes]


def _api(config: KubernetesConfig) -> Api:
    api = Api(config.api_server) if config.api_server else Api.in_cluster()
    if api is None:
        log.warning("kubernetes: this is no pod of a cluster; set kubernetes[].api_server")
        return Api("https://kubernetes.default.svc")
    return api
