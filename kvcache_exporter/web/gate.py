"""Who may connect and ask: what a `Server` wants to know."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Protocol


class Gate(Protocol):
    """Is asked anew at each connection and request, so changes take effect at once."""

    @property
    def authenticates(self) -> bool:
        """Whether clients have to show who they are."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers to put on every response."""

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS settings for a new connection; None = plain HTTP."""

    async def may(self, headers: Mapping[str, str]) -> bool:
        """Whether a request with these headers (names in lower case) may read our pages."""

    def close(self) -> None:
        """Let go of whatever it holds."""


class OpenGate:
    """Plain HTTP for everybody who can connect."""

    authenticates = False
    headers: Mapping[str, str] = {}

    def tls(self) -> ssl.SSLContext | None:
        """Speak plain HTTP."""
        return None

    async def may(self, headers: Mapping[str, str]) -> bool:
        """Let everybody in."""
        return True

    def close(self) -> None:
        """Hold nothing."""
