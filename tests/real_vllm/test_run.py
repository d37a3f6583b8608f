"""``run`` against a real vLLM, scraped by a real Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from load import Load, complete, words
from server import BLOCKS, Server, free_port

INTERVAL = "1"


@pytest.fixture(scope="module")
def exporter(vllm: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The exporter on a port of its own."""
    port = free_port()
    log = tmp_path_factory.mktemp("exporter") / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kvcache_exporter", "run", "--vllm-url", vllm.url,
             "--listen-address", f"127.0.0.1:{port}", "--interval", INTERVAL],
            stderr=output,
        )  # fmt: skip
    yield port
    process.terminate()
    assert process.wait(5) == 0
    assert "connected, vLLM 0.32.0" in log.read_text()


def page(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def value(port: int, name: str, label: str = "") -> float | None:
    pattern = rf"^{name}\{{[^}}]*{re.escape(label)}[^}}]*\}} (\S+)$"
    found = re.search(pattern, page(port), re.MULTILINE)
    return None if found is None else float(found[1])


def eventually(check: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if check():
                return True
        except OSError:
            pass
        time.sleep(0.3)
    return False


def test_the_pool_is_what_vllm_was_started_with(vllm: Server, exporter: int) -> None:
    assert eventually(lambda: value(exporter, "kvcache_pool_blocks") == BLOCKS - 1)
    assert value(exporter, "kvcache_engine_info", 'vllm_version="0.32.0') == 1.0
    assert value(exporter, "kvcache_used_blocks") == 0.0


def test_block_counts_match_the_engines_own_log(vllm: Server, exporter: int) -> None:
    """A few long answers fill the pool slowly, so that vLLM's log line of each 10 s has a match."""
    prompts = [words(number, 40) for number in range(6)]
    requests = [
        threading.Thread(target=complete, args=(vllm.port, prompt, 1900)) for prompt in prompts
    ]
    seen: list[float] = []
    for request in requests:
        request.start()
    while any(request.is_alive() for request in requests):
        used = value(exporter, "kvcache_used_blocks")
        if used is not None:
            seen.append(100 * used / (BLOCKS - 1))
        time.sleep(0.3)
    logged = [float(m) for m in re.findall(r"PU KV cache usage: ([\d.]+)%", vllm.log.read_text())]
    busy = [usage for usage in logged if usage > 0]

    assert busy, "vLLM logged no usage under load"
    assert all(min(abs(ours - theirs) for ours in seen) <= 2 for theirs in busy)
    assert eventually(lambda: value(exporter, "kvcache_used_blocks") == 0.0)


def test_a_client_that_hangs_up_is_followed(vllm: Server, exporter: int) -> None:
    request = threading.Thread(target=complete, args=(vllm.port, words("long", 300), 1500, 400))
    request.start()
    assert eventually(lambda: value(exporter, "kvcache_requests", 'state="running"') == 1.0)
    assert (value(exporter, "kvcache_used_blocks") or 0) > 5
    request.join()
    assert eventually(lambda: value(exporter, "kvcache_requests", 'state="running"') == 0.0)
    assert eventually(lambda: value(exporter, "kvcache_used_blocks") == 0.0)


def test_lost_blocks_are_counted_to_the_block(vllm: Server, exporter: int) -> None:
    vllm.leak(abort=1.0)
    Load(vllm.port, 12, clients=4, abort_share=0.5, max_tokens=300).run()
    vllm.leak()
    Load(vllm.port, 2, clients=1, max_tokens=4).run()  # one more end, so that the truth is written
    time.sleep(1)
    lost = vllm.truth()["orphaned"]

    assert lost > 0
    assert eventually(lambda: value(exporter, "kvcache_used_blocks") == lost)


def test_prometheus_scrapes_us(vllm: Server, exporter: int, tmp_path: Path) -> None:
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "kvcache",
                "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}],
            }
        ],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    prometheus = subprocess.Popen(
        ["prometheus", f"--config.file={tmp_path}/prometheus.yml",
         f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def pool() -> float | None:
        url = f"http://127.0.0.1:{port}/api/v1/query?query={quote('kvcache_pool_blocks')}"
        with urlopen(url, timeout=5) as answer:
            result = json.load(answer)["data"]["result"]
        return float(result[0]["value"][1]) if result else None

    try:
        assert eventually(lambda: pool() == BLOCKS - 1)
    finally:
        prometheus.terminate()
        prometheus.wait(10)
