"""Listen addresses: HOST:PORT, [IPV6]:PORT, :PORT."""

from __future__ import annotations

import socket
from ipaddress import ip_address

BACKLOG = 1024


def split(listen: str) -> tuple[str, int]:
    """Return host ("" = every interface) and port; raise ValueError saying what was expected."""
    host, colon, port = listen.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{listen!r} is not HOST:PORT, for example 127.0.0.1:10158")
    return host, int(port)


def is_exposed(listen: str) -> bool:
    """Whether other machines can connect."""
    host = split(listen)[0]
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def bind(listen: str) -> socket.socket:
    """Return a listening socket; raises OSError with what to do next."""
    host, port = split(listen)
    try:
        family, *_, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if not host and socket.has_dualstack_ipv6():
            family, address = socket.AF_INET6, ("::", port)
        sock = socket.create_server(
            address[:2],
            family=family,
            backlog=BACKLOG,
            dualstack_ipv6=not host and family == socket.AF_INET6,
        )
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot listen on {listen} ({error.strerror}): is another exporter running there, is"
            " the address one of this machine?",
        ) from error
    sock.setblocking(False)
    return sock
