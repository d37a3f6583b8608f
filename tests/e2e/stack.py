"""The whole chain on loopback: simulated vLLM servers, exporter, Prometheus, Alertmanager."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from real_parts import ALERTING, program, rule_builder
from receivers import Receivers

from kvcache_exporter.simulate.config import EngineConfig
from kvcache_exporter.simulate.engine import Engine
from kvcache_exporter.simulate.leaks import Leak
from kvcache_exporter.simulate.server import Server, ServerThread
from kvcache_exporter.simulate.site import Site
from kvcache_exporter.simulate.workload import Workload

SPEED = 150
"""How much faster rules wait: 15 minutes become six seconds."""
VIRTUAL_SPEED = 15.0
"""How much faster the simulated engines live: a burst and a pause last five seconds."""
DEADLINE_SECONDS = 150.0
"""For each thing waited for; a busy machine needs more than the five seconds it takes alone."""
BURSTS = Workload(0.5, busy_seconds=30, quiet_seconds=45, output_tokens=40, abort_share=0.0)
JUDGE = {"proof_seconds": 8, "together_seconds": 1, "settle_seconds": 1, "settle_scrapes": 1}
"""Evidence within seconds instead of minutes; the same judge otherwise."""
PARTS = ("alertmanager", "exporter", "prometheus")


class Fleet:
    """A leaking and a healthy engine, each behind a server of its own, in accelerated time."""

    def __init__(self) -> None:
        leak = (Leak("finish", 1.0, 6),)
        config = EngineConfig("qwen2.5-7b", num_gpu_blocks=4097, step_seconds=0.5)
        self.engines = {
            "llm-leaky": Engine(replace(config, leaks=leak), BURSTS, seed=1),
            "llm-fine": Engine(config, BURSTS, seed=2),
        }
        self._threads = {
            name: ServerThread(Server(Site([engine]))) for name, engine in self.engines.items()
        }
        self.urls = {name: one.__enter__().url() for name, one in self._threads.items()}
        self._ended = threading.Event()
        self._clock = threading.Thread(target=self._live, daemon=True)
        self._clock.start()

    def restart_without_leak(self, name: str) -> None:
        """Start a fixed version anew: another process, an empty pool."""
        engine = self.engines[name]
        engine.config = replace(engine.config, leaks=())
        engine.restart()

    def kill(self, name: str) -> None:
        self._threads.pop(name).__exit__()

    def close(self) -> None:
        self._ended.set()
        self._clock.join(10)
        for name in list(self._threads):
            self.kill(name)

    def _live(self) -> None:
        before = time.monotonic()
        while not self._ended.wait(0.1):
            now = time.monotonic()
            for engine in self.engines.values():
                engine.advance((now - before) * VIRTUAL_SPEED)
            before = now


class Stack:
    """Everything from engine to pager; each part can be killed and started again."""

    def __init__(self, folder: Path, changes: Mapping[str, str]) -> None:
        self.folder = folder
        self._closing = ExitStack()
        self.receivers, self.fleet = Receivers(), Fleet()
        self._closing.callback(self.receivers.close)
        self._closing.callback(self.fleet.close)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = dict(zip(PARTS, _free_ports(len(PARTS)), strict=True))
        build = rule_builder()
        build.write(folder, build.thresholds(changes, speed=SPEED))
        self._configure_alertmanager()
        self._configure_exporter()
        self._configure_prometheus()

    def __enter__(self) -> Stack:
        try:
            for name in PARTS:
                self.start(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, name: str) -> None:
        """Start a part and wait until it answers."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._command(name), stdout=log, stderr=log, cwd=self.folder
            )
        wait_until(lambda: self._answers(name), f"{name} answers")

    def kill(self, name: str) -> None:
        """End a part the hard way."""
        process = self._processes.pop(name)
        process.kill()
        process.wait(10)

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)
        self._closing.close()

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"

    def firing(self) -> set[str]:
        """Names of the alerts that fire in Prometheus."""
        found = self._ask("/api/v1/alerts")["alerts"]
        return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}

    def sees(self, query: str) -> bool:
        """Whether a query to Prometheus has an answer now."""
        return bool(self._ask(f"/api/v1/query?query={urllib.parse.quote(query)}")["result"])

    def _ask(self, path: str) -> Any:
        url = f"http://{self.address('prometheus')}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def _answers(self, name: str) -> bool:
        if self._processes[name].poll() is not None:
            raise AssertionError((self.folder / f"{name}.log").read_text()[-2000:])
        try:
            with urllib.request.urlopen(f"http://{self.address(name)}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def _command(self, name: str) -> list[str]:
        listen = self.address(name)
        match name:
            case "exporter":
                exporter = [sys.executable, "-m", "kvcache_exporter", "run"]
                options = ["--config", "exporter.yml", "--interval", "1"]
                return [*exporter, *options, "--listen-address", listen]
            case "prometheus":
                return [
                    program("prometheus"),
                    "--config.file=prometheus.yml",
                    "--storage.tsdb.path=tsdb",
                    f"--web.listen-address={listen}",
                    "--rules.alert.resend-delay=10s",
                    "--rules.alert.for-grace-period=1s",
                ]
        return [
            program("prometheus-alertmanager"),
            "--config.file=alertmanager.yml",
            "--storage.path=alertmanager",
            f"--web.listen-address={listen}",
            "--cluster.listen-address=",
        ]

    def _configure_exporter(self) -> None:
        targets = [{"url": url, "name": name} for name, url in self.fleet.urls.items()]
        config = {"targets": targets, "judge": JUDGE, "gpus": {"nvml": {"enabled": False}}}
        self._write("exporter.yml", config | {"state_file": "state"})

    def _configure_prometheus(self) -> None:
        scrape = {"job_name": "kvcache-exporter", "honor_labels": True}
        alertmanager = [{"targets": [self.address("alertmanager")]}]
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
                "external_labels": {"cluster": "test"},
            },
            "rule_files": ["rules/*.yml"],
            "alerting": {"alertmanagers": [{"static_configs": alertmanager}]},
            "scrape_configs": [
                scrape | {"static_configs": [{"targets": [self.address("exporter")]}]}
            ],
        }
        self._write("prometheus.yml", config)

    def _configure_alertmanager(self) -> None:
        """Take the committed configuration; only secrets, addresses and waiting times differ."""
        shutil.copytree(ALERTING / "templates", self.folder / "templates")
        text = (ALERTING / "alertmanager.yml").read_text()
        config = yaml.safe_load(text.replace("/etc/alertmanager/secrets", str(self.folder)))
        config["global"]["pagerduty_url"] = f"{self.receivers.url}/v2/enqueue"
        for route in (config["route"], *config["route"]["routes"]):
            route |= {"group_wait": "1s", "group_interval": "1s"}
        (self.folder / "pagerduty-routing-key").write_text("k" * 32)
        (self.folder / "slack-webhook-url").write_text(f"{self.receivers.url}/slack")
        self._write("alertmanager.yml", config)

    def _write(self, name: str, config: object) -> None:
        (self.folder / name).write_text(yaml.safe_dump(config))


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Ask again until it is so."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"not in {DEADLINE_SECONDS:.0f} s: {what}"
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    """Find ports that nobody has; all at once, so that they differ."""
    with ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
