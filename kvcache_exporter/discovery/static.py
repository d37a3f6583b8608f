"""Targets that the operator named on the command line or in the configuration."""

from __future__ import annotations

from kvcache_exporter.config import Config, static_targets
from kvcache_exporter.discovery import Finder, Found


class Static:
    """Always the same."""

    def __init__(self, config: Config) -> None:
        self._found = Found(static_targets(config))

    def find(self, now: float) -> Found:
        """Return them."""
        return self._found

    def close(self) -> None:
        """Nothing is open."""


def open_all(config: Config) -> list[Finder]:
    """Open one finder for all of them."""
    return [Static(config)] if config.targets else []
