"""Why a scrape gave no page: the code machines count, and a text that says what to do next.

No text repeats bytes of a body, credentials, or the query of a URL: they end up in logs and on the
status page.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kvcache_exporter.model import Problem

if TYPE_CHECKING:
    from kvcache_exporter.scrape.head import Head

_STATUS_ADVICE = {
    400: "is the port an https one, is the path right?",
    401: "it wants credentials: set them for this target, or check the file they are read from",
    403: "it refuses our credentials, or the lack of any: check them and the rules of the proxy",
    404: "there is no such metrics path: vLLM serves /metrics on its API port",
    429: "a proxy limits requests: exempt the metrics path, or scrape less often",
    500: "the server failed to make its page: look into its log",
    502: "a proxy does not reach the engine: is vLLM running?",
    503: "the engine is starting, sleeping or behind a proxy with no live server: wait, or wake it",
    504: "a proxy waited in vain for the engine: is vLLM running or hung?",
}

_ERRNO: dict[int, tuple[str, str]] = {
    errno.ECONNREFUSED: (
        "connection_refused",
        "nothing listens on {where}: is vLLM running, is the port right?",
    ),
    errno.ECONNRESET: (
        "connection_reset",
        "{where} closed the connection without an answer: did the engine die, or does the port"
        " speak https?",
    ),
    errno.EPIPE: (
        "connection_reset",
        "{where} closed the connection without an answer: did the engine die, or does the port"
        " speak https?",
    ),
    errno.EHOSTUNREACH: (
        "unreachable",
        "no route to {where}: is the host up, is it the right one?",
    ),
    errno.ENETUNREACH: ("unreachable", "no route to {where}: is this network reachable from here?"),
    errno.ETIMEDOUT: (
        "timeout",
        "{where} does not answer a connection: is the host up, does a firewall drop packets?",
    ),
    errno.EMFILE: (
        "file_limit",
        "this process may open no more files: raise its limit (ulimit -n) above targets + 200",
    ),
}

_TEXT_TYPES = ("text/", "application/openmetrics-text", "application/octet-stream")
_CHARSETS = ("", "utf-8", "utf8", "us-ascii", "ascii")


class ScrapeError(Exception):
    """A scrape that gave nothing, on its way to becoming a `Problem`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(code, text)


def explain(error: Exception, where: str) -> Problem:
    """Name the cause of `error`; `where` is host:port, without userinfo, path or query."""
    if isinstance(error, ScrapeError):
        return error.problem
    if isinstance(error, ssl.SSLError):
        return Problem("tls", f"TLS with {where} failed: {_tls_cause(error)}")
    if isinstance(error, socket.gaierror):
        return Problem(
            "dns", f"the name in {where} does not resolve: is it spelled right, does DNS work here?"
        )
    if isinstance(error, OSError) and error.errno in _ERRNO:
        code, text = _ERRNO[error.errno]
        return Problem(code, text.format(where=where))
    return Problem(
        "failed", f"scraping {where} failed ({type(error).__name__}): please report this as a bug"
    )


def answered(head: Head) -> None:
    """Raise `ScrapeError` unless the server gave what it was asked for, of whatever type."""
    if 300 <= head.status < 400:
        raise ScrapeError(
            "redirect",
            f"the server redirects to {_without_secrets(head.get(b'location'))}; redirects are not"
            " followed: write the final URL in the configuration",
        )
    if head.status != 200:
        advice = _STATUS_ADVICE.get(head.status, "what answers there?")
        raise ScrapeError(
            "http_status", f"the server answered with HTTP status {head.status}: {advice}"
        )


def acceptable(head: Head) -> None:
    """Raise `ScrapeError` unless a response with this head can be a metrics page."""
    answered(head)
    content_type = head.get(b"content-type").strip().lower()
    if "html" in content_type or "json" in content_type or "xml" in content_type:
        raise ScrapeError(
            "not_metrics",
            f"the answer is {content_type.partition(';')[0][:40]!r}, not a metrics page: check"
            " host, port and path (vLLM serves /metrics on its API port)",
        )
    charset = content_type.partition("charset=")[2].strip('" ')
    is_text = content_type == "" or content_type.startswith(_TEXT_TYPES)
    if not is_text or charset not in _CHARSETS:
        raise ScrapeError(
            "not_metrics",
            f"the answer has the type {content_type[:60]!r}, not Prometheus text: check the URL",
        )


def _tls_cause(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        # verify_message is OpenSSL's own text on the peer's certificate: it holds no secret
        return (
            f"{error.verify_message.rstrip('.')}: check the clock, the name in the URL, and the"
            " CA file of this target"
        )
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        return "the port speaks no TLS: write http:// in the URL, if that is meant"
    if error.reason and "CERTIFICATE_REQUIRED" in error.reason:
        return "the server wants a client certificate: configure one for this target"
    return f"{(error.reason or 'handshake broken off').lower().replace('_', ' ')}: check both sides"


def _without_secrets(location: str) -> str:
    """Reduce a redirect's target to scheme, host and path, bounded."""
    try:
        parts = urlsplit(location)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "a malformed address"
    scheme = f"{parts.scheme}://" if parts.scheme else ""
    text = f"{scheme}{host}{port}{parts.path}"[:200]
    return repr(text) if text else "nowhere"
