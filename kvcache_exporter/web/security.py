"""Keeps the TLS settings and users of our port up to date with their files."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from pathlib import Path

from kvcache_exporter.schema import OperatorError
from kvcache_exporter.web.users import Users
from kvcache_exporter.web.web_config import WebSettings, load

log = logging.getLogger(__name__)

_Versions = tuple[tuple[int, int, int] | None, ...]


class Security:
    """What a `Server` asks at each connection and request; re-reads its files when they change.

    A change that is no good is logged once and the settings before it stay in force.
    """

    def __init__(self, path: Path) -> None:
        """Raise OperatorError when the file, or a certificate it names, is no good."""
        self._path = path
        self._settings = WebSettings()
        self._context: ssl.SSLContext | None = None
        self._users = Users({})
        self._read()
        self._seen = self._versions()

    @property
    def authenticates(self) -> bool:
        """Whether clients have to show who they are."""
        return self._settings.authenticates

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers to put on every response."""
        return self._settings.http_server_config.headers

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS settings for a new connection; None = plain HTTP."""
        self._refresh()
        return self._context

    async def may(self, headers: Mapping[str, str]) -> bool:
        """Whether a request with these headers may read our pages."""
        self._refresh()
        return await self._users.may(headers)

    def close(self) -> None:
        """Let go of the thread that verifies passwords."""
        self._users.close()

    def _refresh(self) -> None:
        versions = self._versions()
        if versions == self._seen:
            return
        self._seen = versions
        try:
            self._read()
        except OperatorError as error:
            log.error("the web configuration is not re-read, the one before it stays: %s", error)
            return
        self._seen = self._versions()  # the new settings may name other files
        log.info("web configuration re-read from %s", self._path)

    def _read(self) -> None:
        settings, context = load(self._path), None
        if settings.tls_server_config is not None:
            try:
                context = settings.tls_server_config.context(self._path.parent)
            except (OSError, ssl.SSLError) as error:
                raise OperatorError(
                    f"{self._path.name}.tls_server_config: {_cause(error)}: are these PEM files,"
                    " readable, and do key and certificate belong together?"
                ) from None
        before, self._users = self._users, Users(settings.basic_auth_users)
        before.close()
        self._settings, self._context = settings, context

    def _versions(self) -> _Versions:
        tls = self._settings.tls_server_config
        files = [] if tls is None else tls.files(self._path.parent)
        return tuple(_version(path) for path in (self._path, *files))


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _cause(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not usable").lower().replace("_", " ")
    return f"{error.filename or 'a file'} cannot be read ({error.strerror})"
