"""What goes wrong in the audit stays in it, is told, and passes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from stepped import Clock, eventually, step
from vllm_shapes import Pool, Scheduler, Status

from kvcache_exporter.vllm_plugin import auditor as auditing
from kvcache_exporter.vllm_plugin import hooks, server
from kvcache_exporter.vllm_plugin.auditor import Auditor
from kvcache_exporter.vllm_plugin.hooks import Audits
from kvcache_exporter.vllm_plugin.server import CLIENTS_AT_ONCE, NAME, PID_LIMIT, serve

LONG_SECONDS = 3600.0
"""A sample is due after it, however dear the last one was on a busy machine."""
GET = b"GET / HTTP/1.1\r\n\r\n"


def busy() -> Scheduler:
    scheduler = Scheduler("0.32.0")
    scheduler.give("secret-request-id", Status.RUNNING, 5)
    return scheduler


def test_a_look_that_fails_is_told_once_and_tried_again_later() -> None:
    scheduler, clock = busy(), Clock()
    auditor = Auditor(scheduler, clock)
    tables = scheduler.tables[0]
    whole = tables["secret-request-id"]
    tables["secret-request-id"] = None  # type: ignore[assignment]
    clock.now += LONG_SECONDS
    auditor.step()
    told = auditor.report()
    assert (told["supported"], "TypeError at walk.py" in told["reason"]) == (False, True)

    tables["secret-request-id"] = whole
    assert step(auditor, clock, LONG_SECONDS)["supported"] is True


def test_a_count_that_fails_is_told_and_the_next_one_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler, clock = busy(), Clock()
    auditor = Auditor(scheduler, clock)
    with monkeypatch.context() as broken:
        broken.setattr(auditing, "count", lambda *_: {}["secret-request-id"])
        clock.now += LONG_SECONDS
        auditor.step()
        eventually(lambda: auditor.report()["supported"] is False)
    assert "KeyError" in auditor.report()["reason"]
    assert "secret-request-id" not in auditor.report()["reason"]
    assert step(auditor, clock, LONG_SECONDS)["supported"] is True


def test_a_wall_clock_that_is_set_back_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "SAMPLE_SECONDS", 0.01)
    monkeypatch.setattr(auditing, "COST_SHARE", 1e9)
    monkeypatch.setattr(auditing, "COUNT_SHARE", 1e9)
    assert Auditor.__init__.__defaults__ == (time.monotonic,)
    auditor = Auditor(busy())

    def another() -> bool:
        auditor.step()
        return bool(auditor.report()["samples"] > samples)

    samples = 0
    eventually(another)
    yesterday = time.time() - 86_400
    monkeypatch.setattr(time, "time", lambda: yesterday)
    samples = auditor.report()["samples"] + 3
    eventually(another)
    assert 0 <= auditor.report()["age_seconds"] < 60


def test_the_first_step_looks_at_no_block_that_nobody_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the engine's thread that would go through a million of them."""
    scheduler = busy()
    pool = scheduler.pool
    pool.unlisted = {1}

    class Closed(Pool):
        num_free_blocks = 94

        def __init__(self) -> None:
            self.num_gpu_blocks, self.null_block = pool.num_gpu_blocks, pool.null_block
            self.free_block_queue = self  # type: ignore[misc, assignment]

    monkeypatch.setattr(Pool, "free_block_queue", None)
    scheduler.kv_cache_manager.block_pool = Closed()
    scheduler.kv_cache_manager.coordinator.single_type_managers[0].block_pool = None
    assert Auditor(scheduler)._baseline == 1


def test_an_audit_that_cannot_be_made_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def fail(scheduler: Any) -> Auditor:
        made.append(scheduler)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(hooks, "Auditor", fail)
    make_stats = hooks._after_step(lambda self: "stats", Audits())
    scheduler = busy()

    assert [make_stats(scheduler) for _ in range(3)] == ["stats"] * 3
    assert len(made) == 1


def ask(address: Any) -> bytes:
    """Return what a server answers to a GET."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(10)
        client.connect(address)
        client.sendall(GET)
        return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free port at which the audit is told to listen."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found = int(probe.getsockname()[1])
    monkeypatch.setenv("KVCACHE_AUDIT_LISTEN", f"127.0.0.1:{found}")
    return found


def test_clients_that_say_nothing_keep_nobody_waiting(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TIMEOUT_SECONDS", 60.0)
    serve(lambda: {"ok": True}, 0)
    with ExitStack() as stack:
        for _ in range(CLIENTS_AT_ONCE - 1):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert b'"ok": true' in ask(("127.0.0.1", port))


def test_a_port_that_is_still_held_is_taken_once_it_is_free(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "RETRY_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", port)):
        serve(lambda: {"ok": True}, 0)
        time.sleep(0.05)

    def answers() -> bool:
        try:
            return b'"ok": true' in ask(("127.0.0.1", port))
        except OSError:
            return False

    eventually(answers)


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:99999", "127.0.0.1:"])
def test_an_address_that_is_none_is_only_logged(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KVCACHE_AUDIT_LISTEN", address)
    serve(lambda: {"ok": True}, 0)
    assert "nobody is told" in caplog.text


def test_accepting_goes_on_after_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as with no file descriptor left, or with a client that is gone already."""
    monkeypatch.setattr(server, "RETRY_SECONDS", 0.0)
    here, there = socket.socketpair()
    outcomes: list[Any] = [OSError(24, "Too many open files"), ConnectionAbortedError()] * 5
    outcomes.append((here, None))
    waiting = threading.Event()

    class Listener:
        def accept(self) -> Any:
            if not outcomes:
                waiting.wait()
            outcome = outcomes.pop(0)
            if isinstance(outcome, OSError):
                raise outcome
            return outcome

        def close(self) -> None:
            pass

    arguments = (Listener(), lambda: {"ok": True})
    threading.Thread(target=server._answer_all, args=arguments, daemon=True).start()
    with there:
        there.settimeout(10)
        there.sendall(GET)
        assert b'"ok": true' in there.recv(4096)


CHILD = """
import os, sys, time
from kvcache_exporter.vllm_plugin.server import serve
serve(lambda: {"ok": True}, 0)
time.sleep(0.2)
if child := os.fork():
    print(child, flush=True)
    sys.stdin.read()
    os._exit(0)
time.sleep(600)
"""


@contextmanager
def forked() -> Iterator[tuple[int, int, subprocess.Popen[str]]]:
    """A process that serves an audit, and a child that it forked; their pids."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            yield process.pid, child, process
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_child_that_outlives_the_engine_keeps_no_socket_open() -> None:
    with forked() as (pid, _, process):
        assert b'"ok": true' in ask(f"\0{NAME}/{pid}/0")
        process.kill()
        process.wait()
        listed = Path("/proc/net/unix").read_text()
    assert f"@{NAME}/{pid}/0" not in listed


def test_two_engines_of_one_pid_in_one_network_are_both_found() -> None:
    """As in two containers with the host's network and pids of their own."""
    code = (
        "import os, socket, sys; from kvcache_exporter.vllm_plugin.server import NAME, serve;"
        "taken = socket.socket(socket.AF_UNIX); taken.bind(f'\\0{NAME}/{os.getpid()}/0');"
        "serve(lambda: {'pid': os.getpid()}, 0); print(os.getpid(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        body = ask(f"\0{NAME}/{pid + PID_LIMIT}/0").partition(b"\r\n\r\n")[2]
        process.kill()
    assert json.loads(body) == {"pid": pid}
