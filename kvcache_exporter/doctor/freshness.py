"""Do gauges and counters move while requests are said to run?"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.doctor import Answer, Evidence, Level

RANK = 40

_MOVING = ("prompt_tokens", "generation_tokens", "steps", "first_tokens", "completions")


def examine(evidence: Evidence) -> Iterable[Answer]:
    """Compare the looks; an idle engine need not move."""
    for reading in evidence.engines:
        seen = evidence.history(reading.engine)
        question = f"freshness of engine {reading.engine}"
        if len(seen) < 2:
            yield Answer(
                question, Level.UNKNOWN, "one look is not enough", "give --scrapes 2 or more"
            )
        elif not reading.running:
            yield Answer(question, Level.FINE, "idle, so nothing has to move")
        elif any(getattr(seen[0], n) != getattr(seen[-1], n) for n in _MOVING):
            yield Answer(question, Level.FINE, f"counters moved within {evidence.seconds:.0f} s")
        else:
            yield Answer(
                question,
                Level.WARNING,
                f"{reading.running:.0f} running, yet no counter moved in {evidence.seconds:.0f} s",
                "send one request of one token: if it hangs the engine hangs, if it answers the "
                "gauges were stale",
            )
