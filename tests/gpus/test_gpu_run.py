"""The exporter as a process on a machine whose driver hangs for ever."""

import contextlib
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import hostile
import pytest
from nvml_scenario import Driver, gpu

PAGE = (
    Path(__file__).parents[1] / "data" / "pages" / "vllm-0.32.0-cpu-after-load.prom"
).read_bytes()
SOURCE_DOWN = re.compile(r'^kvcache_gpu_source_up\{source="nvml"\} 0(\.0)?$', re.MULTILINE)
HANGS = {
    "in nvmlInit": {"init": {"hang": True}},
    "in a call": {"devices": [gpu("a", hangs=["nvmlDeviceGetMemoryInfo"])]},
}


class Engine(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = PAGE if self.path == "/metrics" else b""
        self.send_response(200 if page else 404)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


@pytest.fixture
def engine():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def started(engine, driver):
    """(process, address of its own pages) of an exporter that serves."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "kvcache_exporter", "run", "--vllm-url", engine]
    process = subprocess.Popen(
        [*command, "--listen-address", listen, "--interval", "1"],
        env={**os.environ, **driver.environment, "PYTHONUNBUFFERED": "1"},
        stderr=subprocess.DEVNULL,
    )
    return process, f"http://{listen}"


def page(address, path):
    """One of its pages; empty before it listens."""
    try:
        with urllib.request.urlopen(address + path, timeout=10) as answer:
            return answer.read().decode()
    except OSError:
        return ""


@pytest.mark.parametrize("where", HANGS)
def test_a_driver_that_hangs_for_ever_harms_neither_metrics_nor_exit(engine, tmp_path, where):
    driver = Driver(tmp_path / "nvml.json")
    driver.path.write_text(json.dumps(HANGS[where]))
    process, address = started(engine, driver)
    try:
        text = ""
        while SOURCE_DOWN.search(text) is None:
            time.sleep(0.2)
            text = page(address, "/metrics")
        assert "kvcache_target_up{" in text
        assert re.search(r"^kvcache_used_blocks\{.*\} \d", text, re.MULTILINE)
        assert re.search(r"^kvcache_verdict\{.*\} 1(\.0)?$", text, re.MULTILINE)
        assert page(address, "/-/healthy")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == 0
    finally:
        process.kill()
        process.wait()


def test_a_signal_ends_it_while_targets_clients_and_driver_all_hang(tmp_path):
    driver = Driver(tmp_path / "nvml.json")
    driver.path.write_text(json.dumps(HANGS["in a call"]))
    with hostile.serve(hostile.hang) as server, contextlib.ExitStack() as stack:
        process, address = started(server.url, driver)
        try:
            while not page(address, "/-/healthy") or not server.connections:
                time.sleep(0.1)
            listen = ("127.0.0.1", int(address.rpartition(":")[2]))
            for _ in range(50):
                stack.enter_context(socket.create_connection(listen)).send(b"GET /metrics")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=5) == 0
        finally:
            process.kill()
            process.wait()
