"""No client can keep the server from answering a scrape, with or without TLS."""

from __future__ import annotations

import http.client
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kvcache_exporter.web import Latest, Page, Server, pages_of
from kvcache_exporter.web.connection import Limits
from kvcache_exporter.web.gate import OpenGate

TLS = Path(__file__).parent / "data" / "tls"
METRICS = b"up 1\n"
BIG = b"# filler\n" * 700_000
QUICK = Limits(
    connections=16,
    handshake_seconds=0.5,
    head_seconds=0.5,
    idle_seconds=0.5,
    write_seconds=0.5,
    linger_seconds=0.3,
)
PATIENT = Limits()


class Tls(OpenGate):
    """Speaks TLS with everybody."""

    def __init__(self) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(TLS / "server.pem", TLS / "server.key")

    def tls(self) -> ssl.SSLContext:
        return self._context


@contextmanager
def serving(limits: Limits, *, tls: bool) -> Iterator[Server]:
    pages = Latest({"/metrics": Page.of(METRICS), "/big": Page.of(BIG)})
    gate = Tls() if tls else OpenGate()
    server = Server("127.0.0.1:0", pages_of(pages), gate=gate, limits=limits)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def scrape(server: Server, *, tls: bool) -> bytes:
    connection: http.client.HTTPConnection
    if tls:
        trust = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=3, context=trust)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=3)
    connection.request("GET", "/metrics")
    body = connection.getresponse().read()
    connection.close()
    return body


def crowd(stack: ExitStack, server: Server, size: int, data: bytes = b"") -> list[socket.socket]:
    """Open `size` connections that send `data` and then nothing."""
    clients = []
    for _ in range(size):
        client = stack.enter_context(
            socket.create_connection(("127.0.0.1", server.port), timeout=10)
        )
        if data:
            client.sendall(data)
        clients.append(client)
    return clients


def closed(client: socket.socket) -> bool:
    """Whether the server closes the connection within the socket's timeout."""
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("data", [b"", b"GET /metrics HTTP/1.1\r\nX: "], ids=["silent", "slow"])
def test_two_hundred_stalled_connections_do_not_delay_a_scrape(tls: bool, data: bytes) -> None:
    # The limits are the real ones: the scrape must not depend on a deadline running out.
    with serving(PATIENT, tls=tls) as server, ExitStack() as stack:
        crowd(stack, server, 200, data)
        assert scrape(server, tls=tls) == METRICS


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_client_that_never_asks_is_sent_away(tls: bool) -> None:
    with serving(QUICK, tls=tls) as server, ExitStack() as stack:
        assert all(map(closed, crowd(stack, server, 3)))


def test_a_request_that_drips_is_sent_away() -> None:
    with serving(QUICK, tls=False) as server, ExitStack() as stack:
        (client,) = crowd(stack, server, 1, b"GET")
        sent = 0
        try:
            for sent in range(400):  # noqa: B007 - the count is what is asserted
                client.sendall(b" ")
                time.sleep(0.02)
        except OSError:
            pass
        assert sent < 399


def test_an_idle_kept_alive_connection_is_closed_at_last() -> None:
    with serving(QUICK, tls=False) as server, ExitStack() as stack:
        (client,) = crowd(stack, server, 1, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert closed(client)


def test_clients_that_never_read_are_dropped_and_cost_little_memory() -> None:
    with serving(QUICK, tls=False) as server, ExitStack() as stack:
        before = resident_bytes()
        clients = crowd(stack, server, 10, b"GET /big HTTP/1.1\r\n\r\n")
        assert scrape(server, tls=False) == METRICS
        time.sleep(1.0)  # past the deadline of the write
        assert resident_bytes() - before < 5 * len(BIG)
        for client in clients:
            received = 0
            try:
                while part := client.recv(1 << 20):
                    received += len(part)
            except ConnectionError:
                pass
            assert received < len(BIG)


def test_readers_that_hold_every_slot_are_not_cut_off_by_newcomers() -> None:
    limits = Limits(connections=4, write_seconds=5.0)
    with serving(limits, tls=False) as server, ExitStack() as stack:
        readers = crowd(stack, server, 4, b"GET /big HTTP/1.1\r\nConnection: close\r\n\r\n")
        for reader in readers:
            assert reader.recv(1) == b"H"
        (newcomer,) = crowd(stack, server, 1)
        assert closed(newcomer)
        received = 1
        while part := readers[0].recv(1 << 20):
            received += len(part)
        assert received > len(BIG)


def test_a_connection_that_was_answered_outlives_silent_ones() -> None:
    limits = Limits(connections=4)
    with serving(limits, tls=False) as server, ExitStack() as stack:
        prometheus = http.client.HTTPConnection("127.0.0.1", server.port, timeout=3)
        for _ in range(3):
            prometheus.request("GET", "/metrics")
            assert prometheus.getresponse().read() == METRICS
            assert prometheus.sock is not None
            crowd(stack, server, 20)
        prometheus.close()


def at_once(number: int, call: Callable[[], bytes]) -> list[bytes]:
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(call())) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_fifty_clients_at_once_are_all_answered() -> None:
    with serving(PATIENT, tls=False) as server:
        assert at_once(50, lambda: scrape(server, tls=False)) == [METRICS] * 50


def test_garbage_instead_of_a_handshake_harms_nobody() -> None:
    with serving(QUICK, tls=True) as server, ExitStack() as stack:
        assert all(map(closed, crowd(stack, server, 3, b"GET / HTTP/1.1\r\n\r\n")))
        assert scrape(server, tls=True) == METRICS


def test_stopping_does_not_wait_for_clients() -> None:
    with serving(PATIENT, tls=True) as server, ExitStack() as stack:
        clients = crowd(stack, server, 20)
        server.stop()
        assert all(map(closed, clients))
        assert not any(thread.name == "web" for thread in threading.enumerate())


OUT_OF_FILES = """
import resource, socket, sys, time
from kvcache_exporter.web import Latest, Page, Server, pages_of
server = Server("127.0.0.1:0", pages_of(Latest({"/metrics": Page.of(b"up 1\\n")})))
server.start()
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
print(server.port, flush=True)
sys.stdin.readline()
start = time.process_time()
time.sleep(1.0)
print(time.process_time() - start, flush=True)
sys.stdin.readline()
server.stop()
"""


def test_running_out_of_files_neither_spins_nor_lasts() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", OUT_OF_FILES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        port = int(child.stdout.readline())
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            child.stdin.write("go\n")
            child.stdin.flush()
            busy_seconds = float(child.stdout.readline())
            assert busy_seconds < 0.5
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/metrics")
            assert connection.getresponse().read() == b"up 1\n"
            connection.close()
    finally:
        out = child.communicate("stop\n", timeout=10)
    assert out[1].count("Traceback") == 0
