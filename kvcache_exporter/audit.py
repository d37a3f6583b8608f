"""Asks the audits that run inside vLLM's engine processes on this host, found without being told.

See ``vllm_plugin``: each engine process serves counts on an abstract socket that ``/proc/net/unix``
lists. Where vLLM runs in another network namespace, its audit can listen on TCP instead.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvcache_exporter.model import Audit

TIMEOUT_SECONDS = 1.0
MAX_BYTES = 256 * 1024
MAX_AUDITS = 64
_SOCKET = re.compile(r"@(kvcache-audit/[0-9]{1,10}/[0-9]{1,4})$", re.MULTILINE)
_REQUEST = b"GET / HTTP/1.1\r\nHost: audit\r\n\r\n"


def read_audits(proc: Path = Path("/proc")) -> tuple[Audit, ...]:
    """Ask every audit of this host; one that does not answer in time is left out."""
    try:
        listed = (proc / "net" / "unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    names = sorted(set(_SOCKET.findall(listed)))[:MAX_AUDITS]
    answers = (_ask(f"\0{name}") for name in names)
    return tuple(audit for answer in answers if (audit := parse(answer)) is not None)


def parse(answer: bytes) -> Audit | None:
    """Read an answer; None for anything that is not an audit's."""
    try:
        told = json.loads(answer.partition(b"\r\n\r\n")[2])
        return _audit(told) if told["format"] == 1 else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _audit(told: Mapping[str, Any]) -> Audit:
    supported = told["supported"] is True
    return Audit(
        pid=int(told["pid"]),
        engine=str(told["engine"])[:16],
        supported=supported,
        reason=None if supported else str(told.get("reason"))[:300],
        time=_number(told.get("time")),
        pool_blocks=_count(told.get("pool_blocks")),
        free_blocks=_count(told.get("free_blocks")),
        owners=_counts(told.get("owners")),
        requests=_counts(told.get("requests")),
        orphaned_blocks=_count(told.get("orphaned_blocks")),
        settled_orphaned_blocks=_count(told.get("settled_orphaned_blocks")),
        orphaned_after=_counts(told.get("orphaned_after")),
    )


def _ask(address: str) -> bytes:
    answer = b""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(TIMEOUT_SECONDS)
            client.connect(address)
            client.sendall(_REQUEST)
            while len(answer) < MAX_BYTES and (data := client.recv(65536)):
                answer += data
    except OSError:
        return b""
    return answer


def _counts(told: Any) -> tuple[tuple[str, int], ...]:
    """Read counts by name; names are bounded, for they become labels."""
    pairs = told.items() if isinstance(told, dict) else ()
    known = [
        (str(name)[:32], count) for name, value in pairs if (count := _count(value)) is not None
    ]
    return tuple(known[:16])


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
