"""Asks the audits that run inside vLLM's engine processes on this host, found without being told.

See ``vllm_plugin``: each engine process serves counts on an abstract socket that ``/proc/net/unix``
lists. Where vLLM runs in another network namespace, its audit can listen on TCP instead.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from dataclasses import replace
from pathlib import Path

from kvcache_exporter.audits.answers import parse, silent
from kvcache_exporter.model import Audit

TIMEOUT_SECONDS = 1.0
TOTAL_SECONDS = 3.0
"""Together; who comes after that is asked in the next cycle, if those before answer by then."""
MAX_BYTES = 256 * 1024
MAX_AUDITS = 64
_SOCKET = re.compile(r"@(kvcache-audit/([0-9]{1,10})/([0-9]{1,4}))$", re.MULTILINE | re.ASCII)
_REQUEST = b"GET / HTTP/1.1\r\nHost: audit\r\n\r\n"
_CREDENTIALS = struct.Struct("3i")


def read_audits(proc: Path = Path("/proc")) -> tuple[Audit, ...]:
    """Ask every audit of this host; one that does not answer in time says so.

    The process id is the kernel's word on who listens, in our own pid namespace: an audit is worth
    what that process is, whatever it says itself.
    """
    try:
        listed = (proc / "net" / "unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    end = time.monotonic() + TOTAL_SECONDS
    found = sorted(set(_SOCKET.findall(listed)))[:MAX_AUDITS]
    return tuple(_ask(name, int(pid), rank, end) for name, pid, rank in found)


def _ask(name: str, pid: int, rank: str, end: float) -> Audit:
    answer = b""
    end = min(end, time.monotonic() + TIMEOUT_SECONDS)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(max(0.01, end - time.monotonic()))
            client.connect(f"\0{name}")
            pid = _listener(client)
            client.sendall(_REQUEST)
            while len(answer) < MAX_BYTES and (data := _receive(client, end)):
                answer += data
    except (TimeoutError, OSError) as error:
        return silent(rank, f"it does not answer ({error}): is the engine hung?", pid)
    if not answer:
        why = "it answers nobody but root and the user whom vLLM runs as: run the exporter as such"
        return silent(rank, why, pid)
    audit = parse(answer.partition(b"\r\n\r\n")[2])
    return silent(rank, "its answer is none", pid) if audit is None else replace(audit, pid=pid)


def _listener(client: socket.socket) -> int:
    """Return the process that listens at the other end; 0 = in a pid namespace hidden from us."""
    told = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[0])


def _receive(client: socket.socket, end: float) -> bytes:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("too slow")
    client.settimeout(left)
    return client.recv(65536)
