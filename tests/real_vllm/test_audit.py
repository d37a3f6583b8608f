"""The audit plugin inside a real vLLM: its count equals the injected truth, busy and never idle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, VENV, Server, start, stop
from load import Load, complete, words

from kvcache_exporter.audit import read_audits
from kvcache_exporter.model import Audit

LAG_SECONDS = 1.5
"""The audit and the injector's truth are written at different moments of the same second."""


@pytest.fixture(scope="module", autouse=True)
def plugin() -> None:
    """Install this checkout's plugin into vLLM's venv, without what the exporter depends on."""
    pip = [VENV / "bin/pip", "install", "--quiet", "--no-deps", "--editable", ROOT]
    subprocess.run(pip, check=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = start(tmp_path)
    yield one
    stop(one)


def audit(server: Server) -> Audit:
    mine = [one for one in read_audits() if is_below(one.pid, server.process.pid)]
    assert len(mine) == 1
    return mine[0]


def is_below(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def truths(server: Server) -> list[tuple[float, int]]:
    path = Path(f"{server.control}.truth")
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(line["time"], line["orphaned"]) for line in lines]


@pytest.mark.parametrize("kind", ["abort", "finish"])
def test_a_busy_engines_orphans_are_counted_to_the_block(server: Server, kind: str) -> None:
    """Long requests keep the engine busy throughout; others lose their blocks meanwhile."""
    busy = [
        threading.Thread(target=complete, args=(server.port, words(i, 30), 1900)) for i in range(2)
    ]
    for one in busy:
        one.start()
    time.sleep(2)
    server.leak(**{kind: 1.0 if kind == "abort" else 0.2})
    load = threading.Thread(target=Load(server.port, 60, 3, abort_share=0.5, max_tokens=60).run)
    load.start()
    seen: list[tuple[float, int]] = []
    while any(one.is_alive() for one in (*busy, load)):
        told = audit(server)
        assert told.supported, told.reason
        if told.time is not None and told.orphaned_blocks is not None:
            seen.append((told.time, told.orphaned_blocks))
            total = sum(count for _, count in told.owners)
            assert total + told.free_blocks + told.orphaned_blocks == told.pool_blocks
        time.sleep(0.5)
    server.leak()
    known = [(0.0, 0), *truths(server)]

    assert known[-1][1] > 0
    for moment, orphaned in seen:
        near = [count for at, count in known if abs(at - moment) <= LAG_SECONDS]
        last = max((at, count) for at, count in known if at <= moment)[1]
        assert orphaned in range(min([*near, last]), max([*near, last]) + 1)
    time.sleep(1.5)
    assert audit(server).orphaned_blocks == known[-1][1]


def test_a_healthy_busy_engine_has_no_orphans(server: Server) -> None:
    load = threading.Thread(target=Load(server.port, 250, 8, abort_share=0.3, max_tokens=120).run)
    load.start()
    while load.is_alive():
        settled = audit(server).settled_orphaned_blocks
        assert settled in (None, 0)
        time.sleep(0.5)


def rate(server: Server, requests: int = 120) -> float:
    begin = time.perf_counter()
    Load(server.port, requests, 8, max_tokens=60).run()
    return requests / (time.perf_counter() - begin)


def test_throughput_with_and_without_it_is_the_same_within_noise(tmp_path: Path) -> None:
    """Paired runs on two servers, turn by turn; prints the ratio."""
    with_it = start(tmp_path)
    os.environ["KVCACHE_AUDIT"] = "0"
    try:
        (tmp_path / "without").mkdir()
        without = start(tmp_path / "without")
    finally:
        del os.environ["KVCACHE_AUDIT"]
    try:
        rate(with_it), rate(without)  # warm-up
        ratios = sorted(rate(with_it) / rate(without) for _ in range(5))
    finally:
        stop(with_it)
        stop(without)
    print(f"throughput with / without the audit: {ratios}", file=sys.stderr)
    assert ratios[2] > 0.9
