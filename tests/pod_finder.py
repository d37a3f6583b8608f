"""A finder of pods over a fake API server, and what it knows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kube_server
from kube_server import Cluster

from kvcache_exporter.discovery._kube_api import Api
from kvcache_exporter.discovery.kubernetes import Kubernetes
from kvcache_exporter.sd_config import KubernetesConfig


def soon(event: threading.Event, _: float) -> bool:
    """Make every back-off short."""
    return event.wait(0.02)


class Pauses(list[float]):
    """Writes down how long each pause would have been, and makes all of them short."""

    def __call__(self, event: threading.Event, seconds: float) -> bool:
        self.append(seconds)
        return event.wait(0.005)


@contextmanager
def following(
    cluster: Cluster,
    folder: Path,
    config: KubernetesConfig | None = None,
    pause: Callable[[threading.Event, float], bool] = soon,
) -> Iterator[Kubernetes]:
    with kube_server.serve(cluster, folder) as url:
        finder = Kubernetes(config or KubernetesConfig(node=""), Api(url, folder), pause=pause)
        try:
            yield finder
        finally:
            finder.close()


def eventually(check: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.02)
    return False


def names(finder: Kubernetes) -> set[str]:
    return {target.name for target in finder.find(0.0).targets}


def told(finder: Kubernetes) -> str:
    return "".join(problem.text for problem in finder.find(0.0).problems)
