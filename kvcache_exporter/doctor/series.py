"""Is every KV series there that the judge lives on?"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.doctor import Answer, Evidence, Level
from kvcache_exporter.model import EngineReading

RANK = 30

_NEEDED = ("running", "waiting", "usage_ratio", "prompt_tokens", "generation_tokens")
_USEFUL = ("finished_requests", "first_tokens", "completions", "prefix_query_tokens", "preemptions")


def examine(evidence: Evidence) -> Iterable[Answer]:
    """List what is missing of the needed and of the useful series."""
    for reading in evidence.engines:
        question = f"series of engine {reading.engine}"
        needed, useful = _missing(reading, _NEEDED), _missing(reading, _USEFUL)
        if needed:
            yield Answer(
                question,
                Level.PROBLEM,
                f"missing: {', '.join(needed)}",
                "nothing can be judged without them: vLLM before 0.4.2, or a page cut short?",
            )
        elif useful:
            yield Answer(
                question,
                Level.WARNING,
                f"missing: {', '.join(useful)}",
                "judged without them, later and less surely; a newer vLLM prints them",
            )
        else:
            yield Answer(question, Level.FINE, "all there")


def _missing(reading: EngineReading, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(reading, name) is None]
