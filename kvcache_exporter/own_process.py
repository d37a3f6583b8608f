"""What the exporter itself costs: the ``process_*`` series everybody expects of an exporter."""

from __future__ import annotations

from functools import cache

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest


@cache
def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def own_metrics() -> bytes:
    """Return CPU, memory and file figures of this process as exposition text."""
    return generate_latest(_registry())
