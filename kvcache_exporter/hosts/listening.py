"""Which sockets of a network namespace answer at the targets' URLs."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from kvcache_exporter.hosts.procfs import Address, Listener, host_name, listeners, own_addresses


def listening_inodes(
    proc: Path, urls: Mapping[str, str], *, own: bool = True
) -> dict[str, list[int]]:
    """Return inodes by target; a target whose address is not of this namespace is left out.

    *proc* is /proc for our *own* namespace, /proc/PID for that of a process: a pod, where our
    loopback addresses and our host's name mean somebody else.
    """
    listening, addresses = listeners(proc), own_addresses(proc)
    names = {"localhost", host_name(proc)} - {""} if own else set()
    found = {}
    for target, url in urls.items():
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        on_port = [listener for listener in listening if listener.port == port]
        host = parts.hostname or ""
        if host in names:
            found[target] = [listener.inode for listener in on_port]
        elif (address := _address(host)) is not None and _here(address, addresses, own):
            found[target] = _answering(address, on_port)
    return found


def _here(address: Address, addresses: set[Address], own: bool) -> bool:
    if address.is_loopback or address.is_unspecified:
        return own
    return address in addresses


def _address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _answering(address: Address, on_port: list[Listener]) -> list[int]:
    """Prefer, like the kernel, a socket bound to the address over one bound to all of them."""
    exact = [listener.inode for listener in on_port if listener.address == address]
    return exact or [each.inode for each in on_port if each.address.is_unspecified]
