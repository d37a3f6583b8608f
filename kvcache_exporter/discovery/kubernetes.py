"""vLLM pods of this node, or of some namespaces, followed by list and watch in a thread."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

from kvcache_exporter.config import Config
from kvcache_exporter.discovery import Finder, Found
from kvcache_exporter.discovery._kube_api import (
    GONE,
    SERVICE_ACCOUNT,
    Api,
    ApiError,
    Event,
    Watch,
)
from kvcache_exporter.discovery._pods import Pod, matches, read_pod, targets
from kvcache_exporter.model import Problem, Target
from kvcache_exporter.presets import PRESETS, Preset
from kvcache_exporter.sd_config import KubernetesConfig
from kvcache_exporter.urls import is_loopback

log = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 60.0
CALM_SECONDS = 10.0
"""A list and watch that lasted this long was no failure, whatever ended it."""
NO_NODE = Problem(
    "kubernetes",
    "NODE_NAME is not set, so this node's pods cannot be told from others: give it to the "
    'container from spec.nodeName as deploy/k8s does, or set node: "" for the pods of all nodes',
)


@dataclass(slots=True)
class _View:
    """The vLLM pods below one path of the API as last known; a thread writes it."""

    path: str
    pods: dict[str, Pod] = field(default_factory=dict)
    version: str = ""
    """To watch from; empty = list first."""
    listed: bool = False
    """Whether there ever was a list."""
    failures: int = 0
    cached: bool = True
    problem: tuple[str, float] | None = None
    """What is wrong, since when."""
    watch: Watch | None = None


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
        self._selector = _selector(config)
        # An API server on loopback is a developer's own; its pods may be on loopback too.
        self._on_loopback = is_loopback(api.url)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._targets: tuple[Target, ...] | None = None
        self._views = [_View(path) for path in _paths(config)] if _node(config) is not None else []
        for view in self._views:
            name = f"pods {view.path}"
            threading.Thread(target=self._follow, args=(view,), name=name, daemon=True).start()

    def find(self, now: float) -> Found:
        """Return the targets as known at this moment."""
        if not self._views:
            return Found((), (NO_NODE,))
        with self._lock:
            if self._targets is None:
                pods = (pod for view in self._views for pod in view.pods.values())
                kept, auth = self._config.pod_labels, self._config.auth
                found = targets(pods, self._presets, kept, auth)
                self._targets = tuple(replace(t, discovered=not self._on_loopback) for t in found)
            problems = [view.problem for view in self._views if view.problem is not None]
            told = [
                Problem("kubernetes", f"{text} (pods as of {self._clock() - since:.0f} s ago)")
                for text, since in problems
            ]
            return Found(self._targets, tuple(told), all(view.listed for view in self._views))

    def close(self) -> None:
        """End the threads; a request that hangs is not waited for."""
        self._stop.set()
        with self._lock:
            for view in self._views:
                if view.watch is not None:
                    view.watch.hang_up()

    def _follow(self, view: _View) -> None:
        """List and watch, for ever, with pauses that grow while that does not last."""
        while not self._stop.is_set():
            begun = self._clock()
            try:
                self._list_and_watch(view)
            except ApiError as error:
                self._failed(view, str(error), error.status == GONE)
            except Exception as error:  # a dead thread would keep an old list without a word
                log.exception("kubernetes: internal error")
                self._failed(view, f"internal error: {type(error).__name__}, see the log")
            view.failures = 0 if self._clock() - begun > CALM_SECONDS else view.failures + 1
            pause = min(LONGEST_PAUSE_SECONDS, 2.0 ** min(view.failures, 9) / 2)
            self._pause(self._stop, pause * random.uniform(0.5, 1.0))  # noqa: S311

    def _list_and_watch(self, view: _View) -> None:
        if not view.version:
            self._list(view)
        watch = self._api.watch_pods(view.path, self._selector, view.version)
        with closing(watch):
            with self._lock:
                view.watch = watch
            if self._stop.is_set():  # before there was a watch for close() to hang up
                return
            for event in watch:
                self._changed(view, event)

    def _list(self, view: _View) -> None:
        """Take over a whole list; all pods of a cluster come in pages, those of a node at once."""
        cached = view.cached and "fieldSelector" in self._selector
        pods: dict[str, Pod] = {}
        version = ""
        for page in self._api.list_pods(view.path, self._selector, cached):
            read = filter(None, map(read_pod, page.pods))
            pods |= {pod.uid: pod for pod in read if self._wanted(pod)}
            version = page.version
        with self._lock:
            view.pods, view.version, view.listed, view.cached = pods, version, True, True
            view.problem = self._targets = None

    def _changed(self, view: _View, event: Event) -> None:
        pod = read_pod(event.pod)
        with self._lock:
            if pod is not None and event.kind != "BOOKMARK":
                known = view.pods.pop(pod.uid, None)
                if event.kind != "DELETED" and self._wanted(pod):
                    view.pods[pod.uid] = pod
                if view.pods.get(pod.uid) != known:
                    self._targets = None
            view.version = event.version or view.version
            view.problem = None

    def _wanted(self, pod: Pod) -> bool:
        return any(matches(pod, preset) for preset in self._presets)

    def _failed(self, view: _View, text: str, gone: bool = False) -> None:
        """Remember what went wrong; a history that is *gone* is no problem the first time."""
        again = not gone or view.failures > 0
        with self._lock:
            view.version, view.watch = "", None
            view.cached = not again  # a server that is behind could send us round in circles
            if again:
                view.problem = (text, view.problem[1] if view.problem else self._clock())


def _paths(config: KubernetesConfig) -> list[str]:
    if not config.namespaces:
        return ["/api/v1/pods"]
    return [f"/api/v1/namespaces/{name}/pods" for name in config.namespaces]


def _node(config: KubernetesConfig) -> str | None:
    """Return the node whose pods are wanted, "" for all; None if we do not know where we are."""
    return (os.environ.get("NODE_NAME") or None) if config.node == "$NODE_NAME" else config.node


def _selector(config: KubernetesConfig) -> dict[str, str]:
    node = _node(config)
    fields = {"fieldSelector": f"spec.nodeName={node}"} if node else {}
    return fields | ({"labelSelector": config.label_selector} if config.label_selector else {})


def _chosen(config: KubernetesConfig) -> Iterator[Preset]:
    if config.labels:
        labels = {name: (value,) for name, value in config.labels.items()}
        port: str | int = int(config.port) if config.port.isdecimal() else config.port
        yield Preset(labels, (port, 8000), config.scheme, config.path)
    usual = () if config.labels else (name for name, preset in PRESETS.items() if preset.default)
    for name in config.presets or usual:
        yield PRESETS[name]


def open_all(config: Config) -> list[Finder]:
    """Open one finder for each entry of the configuration."""
    return [Kubernetes(one, _api(one)) for one in config.kubernetes]


def _api(config: KubernetesConfig) -> Api:
    if config.api_server:
        return Api(
            config.api_server.rstrip("/"), SERVICE_ACCOUNT if SERVICE_ACCOUNT.exists() else None
        )
    api = Api.in_cluster()
    if api is None:
        log.warning(
            "kubernetes: this is no pod of a cluster; set kubernetes[].api_server, for example to "
            "http://127.0.0.1:8001 of kubectl proxy"
        )
        return Api("https://kubernetes.default.svc")
    return api
