"""Is anything there, and does it answer like a metrics page?"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.doctor import Answer, Evidence, Level

RANK = 10


def examine(evidence: Evidence) -> Iterable[Answer]:
    """Judge the last scrape as a transfer."""
    scrape = evidence.last.scrape
    if scrape.body is None:
        text = scrape.problem.text if scrape.problem else "no answer"
        cause, _, advice = text.partition(": ")
        yield Answer("connection", Level.PROBLEM, cause, advice)
        return
    took = scrape.duration_seconds * 1e3
    yield Answer("connection", Level.FINE, f"{len(scrape.body):,} bytes in {took:.1f} ms")
