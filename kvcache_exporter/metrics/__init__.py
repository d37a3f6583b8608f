"""The catalogue of what we expose; a file here is a kind of thing, an entry in it a family.

``METRICS`` of each module is a tuple of ``Metric``; adding a metric is adding an entry. What is
not known is not exposed.
"""

from __future__ import annotations

from kvcache_exporter.metrics import audits, engines, exporter, gpus, sources, targets

CATALOGUE = (
    *targets.METRICS,
    *engines.METRICS,
    *audits.METRICS,
    *gpus.METRICS,
    *sources.METRICS,
    *exporter.METRICS,
)
