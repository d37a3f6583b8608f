"""Where a URL points, and which addresses a target may resolve to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import quote, urlsplit

from kvcache_exporter.scrape.reasons import ScrapeError

MAX_REQUEST_TARGET_BYTES = 8 * 1024


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One URL taken apart; `path` includes the query, `where` is fit for logs."""

    tls: bool
    host: str
    port: int
    path: str
    where: str
    literal: bool
    """The host is an IP address rather than a name."""


@lru_cache(maxsize=16_384)
def endpoint(url: str, path: str | None = None) -> Endpoint:
    """Take `url` apart, with another `path` (and query) in place of its own when given."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ScrapeError("url", "the URL is malformed: write http://HOST:PORT/metrics") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ScrapeError(
            "url", "the URL is neither http:// nor https://: other schemes are refused"
        )
    if parts.username is not None or parts.password is not None:
        raise ScrapeError("url", "the URL holds credentials: put them into files named by `auth`")
    tls, host = parts.scheme == "https", parts.hostname
    own_path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    request_target = quote(own_path if path is None else path, safe="/?&=%:@!$'()[]*+,;~-._")
    if len(request_target) > MAX_REQUEST_TARGET_BYTES:
        raise ScrapeError("url", f"the path exceeds {MAX_REQUEST_TARGET_BYTES:,} bytes: shorten it")
    number = port or (443 if tls else 80)
    shown = f"[{host}]" if ":" in host else host
    return Endpoint(tls, host, number, request_target, f"{shown}:{number}", _is_literal(host))


def check_address(address: str, where: str, *, literal: bool, discovered: bool) -> None:
    """Refuse addresses that only an attacker or a mistake would have us scrape.

    Checked on the resolved address, at each connect, so that a name cannot be rebound to a cloud's
    metadata service (169.254.169.254). A literal address that the operator wrote is believed.
    """
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    refused = ip.is_link_local or ip.is_multicast or ip.is_unspecified
    if (refused and (discovered or not literal)) or (discovered and ip.is_loopback):
        raise ScrapeError(
            "forbidden_address",
            f"{where} is the {_kind(ip)} address {ip}, which discovery may not name: if it is"
            " meant, list this target in the configuration",
        )


def _kind(ip: IPv4Address | IPv6Address) -> str:
    if ip.is_loopback:
        return "loopback"
    return "link-local" if ip.is_link_local else "multicast or unspecified"


def _is_literal(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
