"""Serves what the last cycle rendered: metrics, status page, health; no work per request."""

from kvcache_exporter.web.pages import Latest, Page, pages_of
from kvcache_exporter.web.server import Server

__all__ = ["Latest", "Page", "Server", "pages_of"]
