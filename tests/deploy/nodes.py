"""Three nodes on loopback addresses: an exporter and vLLM pods on each, one Prometheus over all."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import kube_server
import pytest
import yaml
from exporter_process import Exporter, free_port
from kube_server import Cluster, pod

from kvcache_exporter.simulate.engine import Engine, EngineConfig
from kvcache_exporter.simulate.server import Server, ServerThread
from kvcache_exporter.simulate.site import Site
from kvcache_exporter.simulate.workload import Workload

ROOT = Path(__file__).parents[2]
ADDRESSES = {"node-a": "127.0.0.11", "node-b": "127.0.0.12", "node-c": "127.0.0.13"}
SPEED = 300
"""How much faster the rules wait: ten minutes become two seconds."""
DEADLINE_SECONDS = 60.0


class Nodes:
    """A cluster in which nodes and pods can die."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.cluster = Cluster(token="")
        self._closing = ExitStack()
        self._api = self._closing.enter_context(kube_server.serve(self.cluster, folder))
        self._servers: dict[str, ServerThread] = {}
        self._pods: dict[str, kube_server.Json] = {}
        self._exporters: dict[str, Exporter] = {}
        for node in ADDRESSES:
            self.start_pod(f"{node}-0", node)
            self.start_pod(f"{node}-1", node)
            self._start_exporter(node, monkeypatch)
        self._start_prometheus()

    def start_pod(self, name: str, node: str) -> None:
        engine = Engine(EngineConfig("qwen2.5-7b", num_gpu_blocks=4097), Workload(1.0), seed=1)
        self._servers[name] = ServerThread(Server(Site([engine])), engine.advance)
        port = self._servers[name].__enter__().port
        self._pods[name] = pod(name, node=node, ports=[("http", port)])
        self.cluster.put(self._pods[name])

    def kill_pod(self, name: str) -> None:
        """Its server dies; the API goes on listing it, as it does for a while."""
        self._servers.pop(name).__exit__()

    def kill_node(self, node: str) -> None:
        """Exporter and pods die together."""
        self._exporters.pop(node).kill()
        for name in [name for name in self._servers if name.startswith(node)]:
            self.kill_pod(name)

    def evict(self, name: str) -> None:
        self.cluster.remove(self._pods.pop(name))

    def close(self) -> None:
        for name in list(self._servers):
            self.kill_pod(name)
        for exporter in self._exporters.values():
            exporter.kill()
        self._closing.close()

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series of an instant query."""
        found = self._ask("query?" + urlencode({"query": expression}))["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def alerts(self) -> list[dict[str, str]]:
        """Labels of each alert that fires for somebody to act on."""
        found = self._ask("alerts")["alerts"]
        labels = [one["labels"] for one in found if one["state"] == "firing"]
        return [one for one in labels if one["severity"] != "info"]

    def _ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"http://{self._listen}/api/v1/{what}", timeout=10) as answer:
            return json.load(answer)["data"]

    def _start_exporter(self, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
        config = {
            "kubernetes": [{"api_server": self._api}],
            "gpus": {"nvml": {"enabled": False}},
        }
        path = self.folder / "exporter.yml"
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("NODE_NAME", node)
        listen = f"{ADDRESSES[node]}:{free_port()}"
        arguments = ("--config", str(path), "--interval", "1")
        self._exporters[node] = Exporter(*arguments, listen=listen)

    def _start_prometheus(self) -> None:
        binary = shutil.which("prometheus")
        assert binary is not None, "prometheus is missing: apt-get install prometheus"
        build = _alerting_build()
        build.write(self.folder, build.thresholds(speed=SPEED))
        targets = [one.address.removeprefix("http://") for one in self._exporters.values()]
        interval = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        job = {"job_name": "kvcache-exporter", "honor_labels": True}
        config = {
            "global": interval,
            "rule_files": ["rules/*.yml"],
            "scrape_configs": [job | {"static_configs": [{"targets": targets}]}],
        }
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._listen = f"127.0.0.1:{free_port()}"
        log = self._closing.enter_context((self.folder / "prometheus.log").open("wb"))
        process = subprocess.Popen(
            [
                binary,
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=tsdb",
                f"--web.listen-address={self._listen}",
            ],
            cwd=self.folder,
            stderr=log,
        )
        self._closing.callback(process.wait, 10)
        self._closing.callback(process.kill)


def _alerting_build() -> Any:
    spec = importlib.util.spec_from_file_location("alerting_build", ROOT / "alerting/build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    return build


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Ask again until it is so; a server that is not up yet is not so."""
    end = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"not in {DEADLINE_SECONDS:.0f} s: {what}")
