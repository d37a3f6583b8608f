"""All that is remembered of one engine, bounded and incremental; ``History`` holds the parts."""

from kvcache_exporter.history.history import History

__all__ = ["History"]
