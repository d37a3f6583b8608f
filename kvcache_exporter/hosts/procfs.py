"""What Linux's /proc says: processes and their ancestors, listening sockets, own addresses.

Every function takes the root, so that a container can hand in the host's /proc and a test a
directory.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

Address = IPv4Address | IPv6Address

LISTENING = re.compile(
    r"^ *\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) \S+ 0A(?: +\S+){5} +(\d+)",
    re.MULTILINE | re.ASCII,
)
"""Local address, port and inode of a row in state 0A; a busy host has 10,000 rows in others."""
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
OWN_V4 = re.compile(
    rf"\|-- ({_BYTE}(?:\.{_BYTE}){{3}})\n(?: +/\d+ .*\n)*? +/32 host LOCAL", re.ASCII
)
"""A leaf of the routing trie may hold several prefixes, one a line."""
OWN_V6 = re.compile(r"^([0-9a-f]{32}) ", re.MULTILINE)
INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of include/linux/proc_ns.h."""
MAX_DEPTH = 64


class Process(NamedTuple):
    """One process; ``command`` is its command line, or its title where it has set one."""

    pid: int
    parent: int
    command: str


class Listener(NamedTuple):
    """One listening TCP socket of this network namespace."""

    address: Address
    port: int
    inode: int


def read_process(root: Path, pid: int) -> Process | None:
    """Read one process; None when it is gone or in another pid namespace."""
    try:
        head, _, fields = (root / str(pid) / "stat").read_text(errors="replace").rpartition(")")
        command = (root / str(pid) / "cmdline").read_bytes()
    except OSError:
        return None
    words = command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace").strip()
    # A process that is ending has no command line any more, only a name cut at 15 characters.
    return Process(pid, int(fields.split()[1]), words or head.partition("(")[2])


def ancestry(root: Path, pid: int) -> Iterator[Process]:
    """Yield a process, its parent, and so on up to the first of its pid namespace."""
    for _ in range(MAX_DEPTH):
        process = read_process(root, pid)
        if process is None:
            return
        yield process
        pid = process.parent


def socket_inodes(root: Path, pid: int) -> frozenset[int] | None:
    """Inodes of the sockets a process holds; None when we may not look."""
    try:
        descriptors = list((root / str(pid) / "fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return frozenset()  # it has ended meanwhile
    except OSError:
        return None
    found = (re.fullmatch(r"socket:\[(\d+)\]", link) for link in _links(descriptors))
    return frozenset(int(match[1]) for match in found if match is not None)


def listeners(root: Path) -> list[Listener]:
    """Return every listening TCP socket of our network namespace."""
    tables = (_text(root / "net" / name) for name in ("tcp", "tcp6"))
    return [
        Listener(_address(row[1]), int(row[2], 16), int(row[3]))
        for table in tables
        for row in LISTENING.finditer(table)
    ]


def own_addresses(root: Path) -> set[Address]:
    """Return the addresses of this network namespace, loopback included."""
    v4 = OWN_V4.findall(_text(root / "net" / "fib_trie"))
    v6 = OWN_V6.findall(_text(root / "net" / "if_inet6"))
    return {
        *(ip_address(text) for text in ("127.0.0.1", "::1")),
        *(IPv4Address(text) for text in v4),
        *(IPv6Address(bytes.fromhex(digits)) for digits in v6),
    }


def host_name(root: Path) -> str:
    """Return the host's name; empty where it is not told."""
    lines = _lines(root / "sys" / "kernel" / "hostname")
    return lines[0].strip() if lines else ""


def sees_every_pid(root: Path) -> bool:
    """Whether this is the initial pid namespace, the one whose pids the driver knows."""
    return list(_links([root / "self" / "ns" / "pid"])) == [INITIAL_PID_NAMESPACE]


def network_namespace(process: Path) -> str | None:
    """Return what names the network namespace of a process; None when we may not look."""
    return next(_links([process / "ns" / "net"]), None)


def _links(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        try:
            yield os.readlink(path)
        except OSError:
            continue  # closed since it was listed


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _address(digits: str) -> Address:
    """Decode an address as the kernel prints it: 32-bit words in little-endian byte order."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    packed = struct.pack(f"<{len(words)}I", *words)
    if len(packed) == 4:
        return IPv4Address(packed)
    address = IPv6Address(packed)
    return address.ipv4_mapped or address
