"""One GET of one target under a total deadline: a page, or the reason why there is none."""

from kvcache_exporter.scrape.client import Client
from kvcache_exporter.scrape.filtered import FilteredRoute

__all__ = ["Client", "FilteredRoute"]
