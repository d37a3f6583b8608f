"""Queue, preemptions and a full pool, with the parameter each of them speaks for."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.doctor import Answer, Evidence, Level
from kvcache_exporter.model import EngineReading

RANK = 70

FULL = 0.95
ROOMY = 0.5
PREEMPTION_WARNING = 0.2
"""Preemptions per completion; a healthy busy server was seen at 0.077."""


def examine(evidence: Evidence) -> Iterable[Answer]:
    """Judge what the newest look shows of each engine."""
    for reading in evidence.engines:
        yield _queue(f"queue of engine {reading.engine}", reading)
        yield _preemptions(f"preemptions of engine {reading.engine}", reading)


def _queue(question: str, reading: EngineReading) -> Answer:
    running, waiting, usage = reading.running, reading.waiting, reading.usage_ratio
    if running is None or waiting is None or usage is None:
        return Answer(question, Level.UNKNOWN, "the page does not say", "see the series above")
    text = f"{running:.0f} running, {waiting:.0f} waiting, pool {usage:.1%} full"
    if not waiting:
        return Answer(question, Level.FINE, text)
    if usage >= FULL:
        utilization = reading.gpu_memory_utilization
        now = f" (now {utilization:g})" if utilization is not None else ""
        return Answer(
            question,
            Level.WARNING,
            text,
            f"the pool is the limit: raise --gpu-memory-utilization{now}, lower --max-model-len, "
            "or add a replica",
        )
    if usage < ROOMY and running:
        return Answer(
            question,
            Level.WARNING,
            text,
            f"blocks are free, yet requests wait: is --max-num-seqs {running:.0f}? Raise it",
        )
    return Answer(question, Level.FINE, text)


def _preemptions(question: str, reading: EngineReading) -> Answer:
    preemptions, completions = reading.preemptions, reading.completions
    if preemptions is None or completions is None:
        return Answer(question, Level.UNKNOWN, "not counted on this page", "see the series above")
    if not completions:
        return Answer(question, Level.FINE, f"{preemptions:,.0f}, nothing completed yet")
    ratio = preemptions / completions
    text = f"{ratio:.3f} per completed request since start ({preemptions:,.0f})"
    if ratio > PREEMPTION_WARNING:
        return Answer(
            question,
            Level.WARNING,
            text,
            "work is thrown away and redone: lower --max-num-seqs or --max-model-len, or give the "
            "pool more memory",
        )
    return Answer(question, Level.FINE, text)
