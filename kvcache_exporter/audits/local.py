"""Asks the audits that run inside vLLM's engine processes on this host, found without being told.

See ``vllm_plugin``: each engine process serves counts on an abstract socket that ``/proc/net/unix``
lists. Where vLLM runs in another network namespace, its audit can listen on TCP instead.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from dataclasses import dataclass, replace
from pathlib import Path

from kvcache_exporter.audits.answers import parse, silent
from kvcache_exporter.model import Audit

TIMEOUT_SECONDS = 1.0
"""For all together: everybody is asked before anybody is waited for."""
MAX_BYTES = 256 * 1024
MAX_AUDITS = 64
_SOCKET = re.compile(r"@(kvcache-audit/([0-9]{1,10})/([0-9]{1,4}))$", re.MULTILINE | re.ASCII)
_REQUEST = b"GET / HTTP/1.1\r\nHost: audit\r\n\r\n"
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class _Asked:
    """An audit that was asked and has not been heard yet."""

    pid: int
    rank: str
    client: socket.socket
    problem: OSError | None = None


def read_audits(proc: Path = Path("/proc")) -> tuple[Audit, ...]:
    """Ask every audit of this host; one that does not answer in time says so.

    The process id is the kernel's word on who listens, in our own pid namespace: an audit is worth
    what that process is, whatever it says itself.
    """
    try:
        listed = (proc / "net" / "unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    end = time.monotonic() + TIMEOUT_SECONDS
    found = sorted(set(_SOCKET.findall(listed)))[:MAX_AUDITS]
    asked = [_ask(name, int(pid), rank) for name, pid, rank in found]
    return tuple(_heard(one, end) for one in asked)


def _ask(name: str, pid: int, rank: str) -> _Asked:
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    try:
        client.connect(f"\0{name}")
        pid = _listener(client)
        client.sendall(_REQUEST)
    except OSError as error:
        return _Asked(pid, rank, client, error)
    return _Asked(pid, rank, client)


def _heard(asked: _Asked, end: float) -> Audit:
    answer = b""
    try:
        with asked.client as client:
            if asked.problem is not None:
                raise asked.problem
            while len(answer) < MAX_BYTES and (data := _receive(client, end)):
                answer += data
    except OSError as error:
        why = f"it does not answer ({error}): is the engine hung?"
        return silent(asked.rank, why, asked.pid)
    if not answer:
        why = "it answers nobody but root and the user whom vLLM runs as: run the exporter as such"
        return silent(asked.rank, why, asked.pid)
    audit = parse(answer.partition(b"\r\n\r\n")[2])
    if audit is None:
        return silent(asked.rank, "its answer is none", asked.pid)
    return replace(audit, pid=asked.pid)


def _listener(client: socket.socket) -> int:
    """Return the process that listens at the other end; 0 = in a pid namespace hidden from us."""
    told = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[0])


def _receive(client: socket.socket, end: float) -> bytes:
    """Wait for data until *end*; what has come by then is still read after it."""
    client.settimeout(max(0.0, end - time.monotonic()))
    return client.recv(65536)
