"""Every query of every panel, put to a real Prometheus that knows the demo's last half day."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import requests
from boards import ANYTHING, BOARDS, NAMES, ROOT, Asked, filled, panels, queries, variables

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ONE = {"target": "agents-leaking", "engine": "0"}
SINGLE = {"kvcache-engine", "kvcache-gpu"}
"""Dashboards of one engine, and the engine they are asked about."""
NOTHING_TO_SHOW = {
    "Problems of targets": "every target of the demo can be read",
    "Problems of the target": "likewise",
    "Targets by problem": "likewise",
    "Failed scrapes by reason": "likewise",
    "Problems of the sources": "the simulated GPUs can be read",
    "Held by no engine": "the simulated source does not tell processes",
    "Memory held by no live engine": "likewise",
    "Memory of this engine's processes, and its pool": "likewise, nor does vLLM print the pool",
    "Growth outside the pool since warm-up": "nothing grows there",
    "Reasons beside the state": "an engine that leaks and does nothing else",
    "Hit ratio drifted": "likewise",
}
RECORDING = ROOT / "tests" / "data" / "recordings" / "h200-leak-abort.jsonl.gz"
RECORDED = {"target": "h200", "engine": "0"}
TOLD_BY_THE_RECORDING = {
    "Verdict",
    "Verdict over time",
    "Leak established",
    "Orphaned, proven",
    "Used blocks against the pool",
    "Requests",
    "Completed requests",
    "Prefix hit ratio and its baseline",
    "What this engine is",
    "Driver: memory used",
    "Pool: blocks used",
    "Pool: owned by nobody",
    "Driver against pool",
    "GPU memory of this engine",
    "GPUs",
    "Sources",
}
ABSENT_HERE = {
    "kvcache_gpu_memory_reserved_bytes": "the simulated source does not tell it",
    "kvcache_gpu_unowned_bytes": "nor processes",
    "kvcache_pool_bytes": "vLLM prints it only when it is set by hand",
    "kvcache_used_bytes": "it follows from the pool's bytes",
    r"kvcache_audit_\w+": "the demo's engines have no audit inside",
    "kvcache_prefix_hit_ratio_baseline": "an engine with few tokens has none",
}


class Prometheus(NamedTuple):
    """A running server, and the times at which the demo's past and the recording end."""

    url: str
    end: float
    recording_end: float

    def ask(self, path: str, **params: object) -> list[object]:
        answer = requests.get(f"{self.url}/api/v1/{path}", params=params, timeout=60).json()
        assert answer["status"] == "success", answer
        data = answer["data"]
        return data["result"] if isinstance(data, dict) else data

    def run(self, asked: Asked, values: dict[str, str], end: float | None = None) -> list[object]:
        """Answer as for a panel over the last six hours."""
        query, end = filled(asked.expr, values), end or self.end
        if asked.target["instant"]:
            return self.ask("query", query=query, time=end)
        return self.ask("query_range", query=query, start=end - 6 * 3600, end=end, step=60)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("prometheus")
    past, tape, blocks, config = (
        directory / name for name in ("past.om", "tape.om", "blocks", "prometheus.yml")
    )
    _python("grafana.story", past)
    recording_end = float(_python("grafana.recorded", RECORDING, tape))
    for source in (past, tape):
        fill = [_tool("promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q"]
        subprocess.run([*fill, source, blocks], check=True, stdout=subprocess.DEVNULL)
    config.write_text("global: {}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [_tool("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={blocks}"]
    command += ["--storage.tsdb.retention.time=100y"]
    with (directory / "log").open("w") as log:
        server = subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=log)
    try:
        _wait_for(f"http://{address}/-/ready")
        yield Prometheus(f"http://{address}", _last_time(past), recording_end)
    finally:
        server.terminate()
        server.wait(30)


def _python(module: str, *arguments: Path) -> str:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _tool(name: str) -> str:
    binary = shutil.which(name)
    assert binary, f"{name} is missing: apt-get install prometheus"
    return binary


def _wait_for(url: str) -> None:
    for _ in range(300):
        try:
            if requests.get(url, timeout=5).ok:
                return
        except requests.ConnectionError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"{url} does not answer")


def _last_time(past: Path) -> float:
    with past.open("rb") as file:
        file.seek(-4096, 2)
        return float(file.read().split()[-3])  # before "# EOF"


CASES = [
    pytest.param(name, asked, id=f"{name}: {asked}")
    for name, board in zip(NAMES, BOARDS, strict=True)
    for asked in queries(board)
]


@pytest.mark.parametrize(("name", "asked"), CASES)
def test_query_returns_series(prometheus: Prometheus, name: str, asked: Asked) -> None:
    found = prometheus.run(asked, ANYTHING | (ONE if name in SINGLE else {}))
    excused = asked.panel["title"] in NOTHING_TO_SHOW
    absent = any(re.search(rf"\b{metric}\b", asked.expr) for metric in ABSENT_HERE)
    assert found or excused or absent


@pytest.mark.parametrize(("name", "asked"), CASES)
def test_query_never_mixes_up_series(prometheus: Prometheus, name: str, asked: Asked) -> None:
    """Two lines or rows with one name could not be told apart."""
    found = prometheus.run(asked, ANYTHING | ONE)
    legend = "__auto" if asked.target["instant"] else asked.target["legendFormat"]
    names = [_named(legend, one["metric"]) for one in found]  # type: ignore[index]
    assert len(names) == len(set(names))


def _named(legend: str, labels: dict[str, str]) -> str:
    if legend == "__auto":
        return str(labels)
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), legend)


@pytest.mark.parametrize("title", sorted(TOLD_BY_THE_RECORDING))
def test_a_recording_of_a_real_engine_fills_the_panel(prometheus: Prometheus, title: str) -> None:
    asked = [a for board in BOARDS for a in queries(board) if a.panel["title"] == title]
    found = [prometheus.run(one, ANYTHING | RECORDED, prometheus.recording_end) for one in asked]
    assert any(found)


@pytest.mark.parametrize("board", BOARDS, ids=NAMES)
def test_variables_offer_something(prometheus: Prometheus, board: dict[str, object]) -> None:
    for one in variables(board):
        series, label = re.findall(r"label_values\((.*), (\w+)\)", one["query"]["query"])[0]
        match = filled(series, ANYTHING | (ONE if board["uid"] in SINGLE else {}))
        found = prometheus.ask(f"label/{label}/values", **{"match[]": match})
        assert bool(found) == (label not in ("cluster", "namespace")), one["name"]


def test_every_excuse_is_about_a_panel_that_exists() -> None:
    assert NOTHING_TO_SHOW.keys() <= {p["title"] for board in BOARDS for p in panels(board)}
