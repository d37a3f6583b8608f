"""Tells whoever asks on this host: one JSON object a connection, nothing is ever read but a GET.

By default the socket has a name in Linux' abstract namespace, ``@kvcache-audit/PID/RANK``: it
needs no file, vanishes with the process, and the exporter finds it in ``/proc/net/unix``. Only root
and the user whom vLLM runs as get an answer. The number is only to be unique; who listens is the
kernel's word.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

log = logging.getLogger(__name__)

NAME = "kvcache-audit"
REQUEST_BYTES = 4096
TIMEOUT_SECONDS = 2.0
RETRY_SECONDS = 1.0
CLIENTS_AT_ONCE = 4
"""A thread each, so that one who says nothing keeps nobody else waiting; made beforehand, because
on a machine without a core to spare a new thread may wait for seconds until it runs."""
PID_LIMIT = 1 << 22
"""Linux gives no larger one; what is added to a pid that a process of another pid namespace has."""
NAMES = 16
BACKLOG = 8
MAX_PORT = 65535

Report = Callable[[], dict[str, Any]]


def serve(report: Report, rank: int) -> None:
    """Serve *report* in threads until the process ends.

    What cannot be listened at yet is tried again: the engine before may still hold the port.
    """
    address = os.environ.get("KVCACHE_AUDIT_LISTEN", "")
    listener = None
    try:
        listener = _listen(address, rank)
    except OSError as error:
        log.warning("kvcache audit: cannot listen, nobody is told until it can: %s", error)
    except ValueError as error:
        log.warning("kvcache audit: cannot listen, nobody is told: %s", error)
        return
    _in_thread(_serve, listener, address, rank, report)


def _serve(listener: socket.socket | None, address: str, rank: int, report: Report) -> None:
    while listener is None:
        time.sleep(RETRY_SECONDS)
        with suppress(OSError):
            listener = _listen(address, rank)
    # A child that outlives this process would keep a socket open at which nobody answers.
    os.register_at_fork(after_in_child=listener.close)
    for _ in range(CLIENTS_AT_ONCE - 1):
        _in_thread(_answer_all, listener, report)
    _answer_all(listener, report)


def _in_thread(work: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=work, args=arguments, name="kvcache-audit-serve", daemon=True).start()


def _answer_all(listener: socket.socket, report: Report) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError as error:  # such as no file descriptor left: that passes
            log.debug("kvcache audit: %s", error)
            time.sleep(RETRY_SECONDS)
            continue
        try:
            with client:
                client.settimeout(TIMEOUT_SECONDS)
                if _may(client):
                    _answer(client, report)
        except Exception as error:  # a client that misbehaves is its own problem
            log.debug("kvcache audit: %s", error)


def _listen(address: str, rank: int) -> socket.socket:
    if not address:
        return _listen_on_this_host(rank)
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    at = (host.strip("[]") or "127.0.0.1", int(port) + rank)
    if at[1] > MAX_PORT:
        raise ValueError(f"{address} and rank {rank} are no port")
    return socket.create_server(at, family=family)


def _listen_on_this_host(rank: int) -> socket.socket:
    """Take the first name that is free: containers may share a network and have pids of their own.

    Raises OSError when none is.
    """
    listener = socket.socket(socket.AF_UNIX)
    for attempt in range(NAMES):
        try:
            listener.bind(f"\0{NAME}/{os.getpid() + attempt * PID_LIMIT}/{rank}")
            listener.listen(BACKLOG)
            return listener
        except OSError as error:
            last = error
    listener.close()
    raise last


def _may(client: socket.socket) -> bool:
    if client.family != socket.AF_UNIX:
        return True
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return user in (0, os.getuid())


def _answer(client: socket.socket, report: Report) -> None:
    if not client.recv(REQUEST_BYTES).startswith(b"GET "):
        return
    body = json.dumps(report()).encode()
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    client.sendall(head.encode() + body)
