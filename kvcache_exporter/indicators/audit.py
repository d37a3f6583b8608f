"""What the audit inside the engine counted: no estimate, and no idle moment needed.

A block is lost when nobody has referred to it for longer than any free may lag, or when it stands
in the table of a request that is long gone. While the audit is silent this says nothing, and the
evidence from outside holds.
"""

from __future__ import annotations

from kvcache_exporter.audits.answers import gone_blocks, lost_blocks
from kvcache_exporter.history import History
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Audit, Indication, State

AFTER = {
    "abort": "an abort",
    "request": "the end of a request",
    "preemption": "a preemption",
    "transfer_error": "a failed transfer",
    "several": "ends of several kinds",
}


def indicate(history: History, _: JudgeSettings) -> Indication | None:
    """Blocks of nobody as counted now; low = those that have settled, None until that is known."""
    audit = history.audit
    if audit is None or not audit.supported or (gone := gone_blocks(audit)) is None:
        return None
    lost = lost_blocks(audit)
    if lost is None:
        text = f"{gone} blocks belong to nobody so far, counted inside the engine; frees may lag"
        return Indication("audit", float(gone), False, text)
    return Indication(
        "audit",
        float(gone),
        lost > 0,
        _because(audit, lost) if lost else "counted inside the engine: no block is lost",
        low=float(lost),
        high=float(max(lost, gone)),
        details={"orphaned_blocks": max(lost, gone), "orphaned_blocks_low": lost},
        state=State.LEAK,
        exact=True,
    )


def _because(audit: Audit, lost: int) -> str:
    text = f"{lost} blocks belong to nobody, counted inside the engine (process {audit.pid})"
    if audit.settled_ghost_blocks:
        text += f"; {audit.settled_ghost_blocks} of them to requests that are long gone"
    events = sorted(audit.orphaned_after, key=lambda pair: -pair[1])
    told = [f"{count} after {AFTER[event]}" for event, count in events if event in AFTER]
    return f"{text}; went missing: {', '.join(told)}" if told else text
