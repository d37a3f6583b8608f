"""Addresses as operators write them: completed, named, checked, and freed of secrets."""

from __future__ import annotations

from urllib.parse import urlsplit

DEFAULT_PORT = 10158
"""Free in the exporters' port register; 9100 to 9999 are all taken."""
_BASES = ("", "/", "/v1", "/v1/")
"""Paths people paste for a server as a whole; its metrics are under /metrics."""


def metrics_url(url: str) -> str:
    """Complete the address of a server to that of its metrics page."""
    parts = urlsplit(url)
    return parts._replace(path="/metrics").geturl() if parts.path in _BASES else url


def target_name(url: str) -> str:
    """Name a target by host and port, and by its path where that is not /metrics."""
    parts = urlsplit(metrics_url(url))
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{host}:{port}" + ("" if parts.path == "/metrics" else parts.path)


def url_mistake(url: str) -> str | None:
    """Say what is wrong with the address of a server, if anything."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # its text may hold part of a password
        return "is not a URL: check the port (at most 65535) and the brackets of an IPv6 address"
    if parts.scheme not in ("http", "https") or "://" not in url:
        return f"must start with http:// or https://; did you mean http://{bare(url)}?"
    if not host or any(c.isspace() or ord(c) < 32 for c in url):
        return "has no host, or a blank in it; write http://HOST:PORT"
    if port == 0 or not all(0 < len(part) < 64 for part in host.removesuffix(".").split(".")):
        return "has a host or a port that cannot exist; write http://HOST:PORT"
    if parts.username is not None or parts.password is not None:
        return "must not carry a user or password; put them in a file and name it under auth"
    return "must not have a fragment (#...)" if parts.fragment else None


def bare(url: str) -> str:
    """Strip scheme and any user and password, which must not reach a message."""
    return url.split("//")[-1].rpartition("@")[2]


def address_mistake(address: str) -> str | None:
    """Say what is wrong with HOST:PORT, if anything."""
    host, colon, port = address.rpartition(":")
    sound = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65535
    if not colon or not sound:
        return f"must be HOST:PORT such as 127.0.0.1:{DEFAULT_PORT}, not {address!r}"
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return f"an IPv6 address needs brackets: [{host}]:{port}"
    return None


def is_loopback(url: str) -> bool:
    """Whether *url* names this machine itself."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
