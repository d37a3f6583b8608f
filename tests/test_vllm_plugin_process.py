"""Loading the plugin, forking under it, and its socket: nothing of it may harm the engine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from stepped import Clock
from vllm_shapes import Block, Scheduler

from kvcache_exporter.vllm_plugin.auditor import Auditor
from kvcache_exporter.vllm_plugin.hooks import Audits
from kvcache_exporter.vllm_plugin.server import NAME, serve

pytestmark = pytest.mark.usefixtures("cheap_samples")


@pytest.fixture
def on_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit on a socket of this very process would be found by later tests."""
    monkeypatch.setenv("KVCACHE_AUDIT_LISTEN", "127.0.0.1:0")


@pytest.mark.usefixtures("on_tcp")
def test_a_process_that_was_forked_starts_anew() -> None:
    audits, scheduler = Audits(), Scheduler("0.32.0")
    first = audits.of(scheduler)
    audits._pid = -1  # as the child of a fork finds it
    assert audits.of(scheduler) is not first


def test_the_socket_answers_a_get_with_json_and_nothing_else_with_nothing() -> None:
    code = (
        "import os, sys; from kvcache_exporter.vllm_plugin.server import serve;"
        "serve(lambda: {'pid': os.getpid()}, 0); print(os.getpid(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        for request, wanted in ((b"GET / HTTP/1.1\r\n\r\n", True), (b"POST / HTTP/1.1\r\n", False)):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(5)
                client.connect(f"\0{NAME}/{pid}/0")
                client.sendall(request)
                answer = b"".join(iter(lambda: client.recv(65536), b""))
            assert (
                (json.loads(answer.split(b"\r\n\r\n")[1]) == {"pid": pid}) if wanted else not answer
            )
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


def test_tcp_adds_the_rank_to_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("KVCACHE_AUDIT_LISTEN", f"127.0.0.1:{port - 1}")
    serve(lambda: {"ok": True}, rank=1)
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b'"ok": true' in client.recv(4096)


@pytest.mark.parametrize(
    "scheduler", ["", "class Scheduler: pass", "raise RuntimeError('half imported')"]
)
def test_whatever_vllm_looks_like_loading_it_never_raises(scheduler: str, tmp_path: Path) -> None:
    files = {"kv_cache_manager.py": "class KVCacheManager: pass", "sched/scheduler.py": scheduler}
    for name, text in files.items():
        path = tmp_path / "vllm" / "v1" / "core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    code = "from kvcache_exporter.vllm_plugin import register; register()"
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "nothing is audited" in done.stderr


@pytest.mark.usefixtures("on_tcp")
def test_an_engine_whose_inside_is_unknown_still_tells_that() -> None:
    class Unknown:
        """Nothing that we know is in it."""

    auditor = Audits().of(Unknown())
    auditor.step()
    assert auditor.report()["supported"] is False


def test_loading_it_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import kvcache_exporter.vllm_plugin.hooks;"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    third_party = set(done.stdout.split()) - set(sys.stdlib_module_names) - {"kvcache_exporter"}

    assert third_party == set()


def test_a_sample_that_meets_a_changing_table_is_left_out() -> None:
    scheduler, clock = Scheduler("0.32.0"), Clock()

    class Changing(dict[str, list[Block]]):
        def items(self) -> Any:
            raise RuntimeError("dictionary changed size during iteration")

    scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks = Changing()
    auditor = Auditor(scheduler, clock)
    clock.now += 5
    auditor.step()

    assert auditor.report()["supported"] is True
    assert threading.active_count() > 0
