"""Do the block counts add up, and after a drain are they back at the baseline?"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.doctor import Answer, Evidence, Level
from kvcache_exporter.model import EngineReading

RANK = 50


def examine(evidence: Evidence) -> Iterable[Answer]:
    """Judge capacity and use; with *expect_idle* the pool must be empty."""
    for reading in evidence.engines:
        question = f"blocks of engine {reading.engine}"
        if reading.pool_blocks is None or reading.used_blocks is None:
            text = "; ".join(problem.text for problem in reading.problems) or "not told"
            cause, _, advice = text.partition(": ")
            yield Answer(question, Level.UNKNOWN, cause, advice)
        else:
            yield Answer(question, Level.FINE, _count(reading))
        if evidence.expect_idle:
            yield _idle(reading)


def _count(reading: EngineReading) -> str:
    pool, used = reading.pool_blocks or 0, reading.used_blocks or 0
    size = reading.block_size_tokens
    tokens = f" of {size} tokens" if size else ""
    return (
        f"{used:,} of {pool:,} blocks{tokens} used, {pool - used:,} free; usage is a whole number"
    )


def _idle(reading: EngineReading) -> Answer:
    question = f"engine {reading.engine} drained"
    if reading.running is None or reading.waiting is None or reading.used_blocks is None:
        return Answer(question, Level.UNKNOWN, "the page does not say", "see the answers above")
    if reading.running or reading.waiting:
        return Answer(
            question,
            Level.PROBLEM,
            f"{reading.running:.0f} running and {reading.waiting:.0f} waiting: not idle",
            "wait for the drain, then check again",
        )
    if reading.used_blocks:
        return Answer(
            question,
            Level.PROBLEM,
            f"{reading.used_blocks:,} blocks in use with nobody running or waiting",
            "blocks did not return to base: record the next run and see docs/detection.md; with a "
            "KV connector wait for its hold time first",
        )
    return Answer(question, Level.FINE, "idle, and every block is back")
