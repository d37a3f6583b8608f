"""Is it vLLM, which version, and how does it spell its metrics?"""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_exporter.doctor import Answer, Evidence, Level

RANK = 20


def examine(evidence: Evidence) -> Iterable[Answer]:
    """Name what answers."""
    if evidence.last.scrape.body is None:
        return
    if not evidence.engines:
        problem = next(iter(evidence.last.reading.problems), None)
        text = problem.text if problem else "no vLLM series"
        cause, _, advice = text.partition(": ")
        yield Answer("vLLM", Level.PROBLEM, cause, advice)
        return
    one, count = evidence.engines[0], len(evidence.engines)
    version = evidence.last.reading.vllm_version
    text = f"{version or 'version not told'}, {count} engine(s), names start with {one.naming}"
    if version is None:
        yield Answer(
            "vLLM", Level.FINE, text, "GET /version did not answer: is a gateway in between?"
        )
    else:
        yield Answer("vLLM", Level.FINE, text)
