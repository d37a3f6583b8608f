"""Who we are to a target and how we check who it is; secrets are read from files at each scrape.

Reading each time is what makes a rotated token or certificate take effect without a reload.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from functools import lru_cache
from pathlib import Path

from kvcache_exporter.model import Credentials
from kvcache_exporter.scrape.reasons import ScrapeError

MAX_SECRET_BYTES = 64 * 1024


def authorization(credentials: Credentials) -> str:
    """Return the value of the Authorization header; "" when none is to be sent."""
    if credentials.bearer_file is not None:
        token = _secret(credentials.bearer_file)
        if not token.isascii():
            raise ScrapeError("credentials", f"{credentials.bearer_file} holds no token: check it")
        return f"Bearer {token}"
    if credentials.username is not None:
        password = _secret(credentials.password_file) if credentials.password_file else ""
        pair = f"{credentials.username}:{password}".encode()
        return f"Basic {b64encode(pair).decode()}"
    return ""


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """Return the TLS settings for `credentials`, made anew when one of their files changes."""
    files = (credentials.ca_file, credentials.cert_file, credentials.key_file)
    try:
        return _tls_context(credentials, tuple(_version(path) for path in files))
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(path for path in files if path)
        raise ScrapeError(
            "credentials",
            f"no TLS settings could be made from {names or 'the system CAs'}: are these PEM files,"
            " readable, and do key and certificate belong together?",
        ) from error


@lru_cache(maxsize=64)
def _tls_context(credentials: Credentials, versions: tuple[int | None, ...]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=credentials.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if credentials.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credentials.cert_file is not None:
        # Without a callback OpenSSL would ask for an encrypted key's password on the terminal.
        context.load_cert_chain(credentials.cert_file, credentials.key_file, lambda: "")
    return context


def _version(path: str | None) -> int | None:
    return None if path is None else Path(path).stat().st_mtime_ns


def _secret(path: str) -> str:
    try:
        with open(path, "rb") as file:
            secret = file.read(MAX_SECRET_BYTES).decode().strip()
    except (OSError, ValueError) as error:
        raise ScrapeError(
            "credentials", f"the credentials file {path} cannot be read as text: check it"
        ) from error
    if not secret or not secret.isprintable():
        raise ScrapeError(
            "credentials", f"the credentials file {path} is empty or holds more than one line"
        )
    return secret
