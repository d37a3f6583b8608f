"""Is the prefix cache on, and does it hit?"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.doctor import Answer, Evidence, Level
from kvcache_exporter.model import EngineReading

RANK = 60

ENOUGH_TOKENS = 50_000
"""Looked-up tokens below which a ratio means little."""


def examine(evidence: Evidence) -> Iterable[Answer]:
    """Judge the lifetime ratio; drift needs history and is the verdict's business."""
    for reading in evidence.engines:
        yield _answer(f"prefix cache of engine {reading.engine}", reading)


def _answer(question: str, reading: EngineReading) -> Answer:
    hits, queries = reading.prefix_hit_tokens, reading.prefix_query_tokens
    if reading.prefix_caching is False:
        return Answer(
            question,
            Level.WARNING,
            "switched off",
            "with shared system prompts --enable-prefix-caching saves their prefill",
        )
    if hits is None or queries is None:
        return Answer(question, Level.UNKNOWN, "no hit counters on the page", "vLLM before 0.8?")
    if queries < ENOUGH_TOKENS:
        return Answer(question, Level.FINE, f"only {queries:,.0f} tokens looked up so far")
    if hits == 0:
        return Answer(
            question,
            Level.WARNING,
            f"not one hit in {queries:,.0f} looked-up tokens",
            "prompts share nothing, share less than a block, or hits are not counted by this build",
        )
    return Answer(
        question, Level.FINE, f"{hits / queries:.1%} of {queries:,.0f} tokens since start"
    )
