"""Is there an audit inside the engine, and what has it counted?"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.audits.answers import lost_blocks
from kvcache_exporter.doctor import Answer, Evidence, Level
from kvcache_exporter.model import Audit

RANK = 85


def examine(evidence: Evidence) -> Iterable[Answer]:
    """Answer for each engine that has one; an engine without is nothing to complain about."""
    for reading, status in evidence.statuses():
        if status.audit is not None:
            yield _answer(f"audit inside engine {reading.engine}", status.audit)


def _answer(question: str, audit: Audit) -> Answer:
    if not audit.supported:
        text = f"counts nothing: {audit.reason}"
        return Answer(question, Level.WARNING, text, "see docs/audit.md for what it needs")
    if audit.double_booked_blocks:
        text = f"{audit.double_booked_blocks:,} blocks are free and somebody's at once"
        return Answer(question, Level.PROBLEM, text, "restart vLLM: requests may mix")
    lost = lost_blocks(audit)
    if lost is None:
        text = f"{audit.orphaned_blocks or 0:,} blocks are nobody's so far"
        return Answer(question, Level.UNKNOWN, text, "ask again in a minute: frees may lag")
    if lost:
        text = f"{lost:,} of {audit.pool_blocks or 0:,} blocks are lost"
        return Answer(question, Level.PROBLEM, text, "see whose the others are: explain URL")
    return Answer(question, Level.FINE, f"none of {audit.pool_blocks or 0:,} blocks is lost")
