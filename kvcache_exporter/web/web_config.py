"""TLS and users of our own port, in the format of Prometheus' exporter-toolkit.

What the toolkit knows and this server cannot do is refused, not ignored: a security setting that
silently has no effect is worse than none. HTTP/2 is the exception: `http2` is accepted, and clients
speak HTTP/1.1 anyway.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvcache_exporter.schema import OperatorError, build, parse_yaml

ALLOWED_HEADERS = frozenset(
    {
        "Content-Security-Policy",
        "Strict-Transport-Security",
        "X-Content-Type-Options",
        "X-Frame-Options",
        "X-XSS-Protection",
    }
)
_BCRYPT = re.compile(r"\$2[aby]\$(?:0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
_PRINTABLE = re.compile(r"[\t -~]*")


class ClientAuth(StrEnum):
    """Go's names for whether a client shows a certificate; those that do not verify are refused."""

    NONE = "NoClientCert"
    IF_GIVEN = "VerifyClientCertIfGiven"
    REQUIRED = "RequireAndVerifyClientCert"


class TlsVersion(StrEnum):
    """TLS versions still considered safe."""

    TLS12 = "TLS12"
    TLS13 = "TLS13"


_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_VERSIONS = {TlsVersion.TLS12: ssl.TLSVersion.TLSv1_2, TlsVersion.TLS13: ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class TlsServer:
    """The section `tls_server_config`; paths are relative to the file it stands in."""

    cert_file: str
    key_file: str
    client_auth_type: ClientAuth = ClientAuth.NONE
    client_ca_file: str | None = None
    min_version: TlsVersion = TlsVersion.TLS12
    max_version: TlsVersion = TlsVersion.TLS13

    def mistakes(self) -> Iterable[tuple[str, str]]:
        """Check what spans several keys."""
        verifies = self.client_auth_type is not ClientAuth.NONE
        if verifies and self.client_ca_file is None:
            yield "client_ca_file", f"is required by client_auth_type {self.client_auth_type}"
        if self.client_ca_file is not None and not verifies:
            yield (
                "client_auth_type",
                "is NoClientCert, so client_ca_file has no effect; set RequireAndVerifyClientCert",
            )
        if self.min_version > self.max_version:
            yield "min_version", f"is above max_version {self.max_version}"

    def files(self, base: Path) -> list[Path]:
        """Return every file that a context is made from."""
        names = (self.cert_file, self.key_file, self.client_ca_file)
        return [base / name for name in names if name is not None]

    def context(self, base: Path) -> ssl.SSLContext:
        """Make the TLS settings; raise OSError or SSLError when a file is no good."""
        for path in self.files(base):
            path.open("rb").close()  # ssl does not say which file is missing
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.min_version]
        context.maximum_version = _VERSIONS[self.max_version]
        # Without a callback OpenSSL would ask for an encrypted key's password on the terminal.
        context.load_cert_chain(base / self.cert_file, base / self.key_file, lambda: "")
        if self.client_ca_file is not None:
            context.load_verify_locations(base / self.client_ca_file)
        context.verify_mode = _VERIFY[self.client_auth_type]
        return context


@dataclass(frozen=True, slots=True)
class HttpServer:
    """The section `http_server_config`."""

    http2: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)

    def mistakes(self) -> Iterable[tuple[str, str]]:
        """Allow what the toolkit allows."""
        for name, value in self.headers.items():
            if name not in ALLOWED_HEADERS:
                yield f"headers.{name}", f"must be one of {', '.join(sorted(ALLOWED_HEADERS))}"
            elif not _PRINTABLE.fullmatch(value):
                yield f"headers.{name}", "holds characters that no header may have; remove them"


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The whole file."""

    tls_server_config: TlsServer | None = None
    http_server_config: HttpServer = HttpServer()
    basic_auth_users: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Names and bcrypt hashes. Untyped, since the schema would quote a password put here bare."""

    def mistakes(self) -> Iterable[tuple[str, str]]:
        """Check the users without ever quoting what stands in place of a hash."""
        for name, value in self.basic_auth_users.items():
            if not isinstance(value, str) or not _BCRYPT.fullmatch(value):
                yield (
                    f"basic_auth_users.{name}",
                    "is no bcrypt hash; make one with: htpasswd -nBC 10 '' | tr -d ':\\n'",
                )
            if ":" in name or not name:
                yield f"basic_auth_users.{name}", "a name must not be empty or hold a colon"
        if self.basic_auth_users and find_spec("bcrypt") is None:
            yield "basic_auth_users", "needs bcrypt; run: pip install 'kvcache-exporter[auth]'"

    @property
    def authenticates(self) -> bool:
        """Whether a client has to show who it is."""
        tls = self.tls_server_config
        required = tls is not None and tls.client_auth_type is ClientAuth.REQUIRED
        return required or bool(self.basic_auth_users)


def load(path: Path) -> WebSettings:
    """Read the file; raise OperatorError with everything that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise OperatorError(f"{path}: cannot be read: {reason}") from None
    return build(WebSettings, parse_yaml(text, path.name), path.name)
