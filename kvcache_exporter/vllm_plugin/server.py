"""Tells whoever asks on this host: one JSON object a connection, nothing is ever read but a GET.

By default the socket has a name in Linux' abstract namespace, ``@kvcache-audit/PID/RANK``: it
needs no file, vanishes with the process, and the exporter finds it in ``/proc/net/unix``. Only root
and the user whom vLLM runs as get an answer.
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
from typing import Any

log = logging.getLogger(__name__)

NAME = "kvcache-audit"
REQUEST_BYTES = 4096
TIMEOUT_SECONDS = 2.0
RETRY_SECONDS = 1.0


def serve(report: Callable[[], dict[str, Any]], rank: int) -> None:
    """Serve *report* in a thread until the process ends; a socket that fails is only logged."""
    try:
        listener = _listen(os.environ.get("KVCACHE_AUDIT_LISTEN", ""), rank)
    except (OSError, ValueError) as error:
        log.warning("kvcache audit: cannot listen, nobody will be told: %s", error)
        return
    threading.Thread(
        target=_answer_all, args=(listener, report), name="kvcache-audit-serve", daemon=True
    ).start()


def _listen(address: str, rank: int) -> socket.socket:
    if address:
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        at = (host.strip("[]") or "127.0.0.1", int(port) + rank)
        return socket.create_server(at, family=family)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"\0{NAME}/{os.getpid()}/{rank}")
    except OSError:
        listener.close()
        raise
    listener.listen(8)
    return listener


def _answer_all(listener: socket.socket, report: Callable[[], dict[str, Any]]) -> None:
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


def _may(client: socket.socket) -> bool:
    if client.family != socket.AF_UNIX:
        return True
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return user in (0, os.getuid())


def _answer(client: socket.socket, report: Callable[[], dict[str, Any]]) -> None:
    if not client.recv(REQUEST_BYTES).startswith(b"GET "):
        return
    body = json.dumps(report()).encode()
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    client.sendall(head.encode() + body)
