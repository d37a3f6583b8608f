"""Preemptions per completed request: work thrown away and done again."""

from __future__ import annotations

from statistics import median

from kvcache_exporter.history import History
from kvcache_exporter.indicators._recent import gained, known, span_seconds
from kvcache_exporter.judge_settings import JudgeSettings
from kvcache_exporter.model import Indication, State

EVERY_SECONDS = 60.0
HEALTHY_RATIO = 0.077
"""A busy production engine: 1,538 preemptions over 19,801 completions."""
WARNING_RATIO = 0.2
STORM_RATIO = 1.0
MIN_PREEMPTIONS = 10
MIN_COMPLETIONS = 20
"""Below this many in the recent scrapes, finished blocks are added until there are enough."""
SLOWED_DOWN = 0.5


def indicate(history: History, settings: JudgeSettings) -> Indication | None:
    """Preemptions per completion; alarms from the warning ratio on, votes only for a storm."""
    reading = history.reading
    if reading is None or reading.preemptions is None or reading.completions is None:
        return None
    preemptions, completions, seconds = _recently(history)
    if seconds <= 0:
        return None
    ratio = preemptions / max(1.0, completions) if preemptions or completions else None
    rate, usual = _generation_rates(history) if preemptions else (None, None)
    slow = rate is not None and usual is not None and rate <= SLOWED_DOWN * usual
    enough = preemptions >= MIN_PREEMPTIONS
    storm = enough and ratio is not None and ratio > STORM_RATIO and slow
    return Indication(
        "preemption",
        ratio,
        enough and ratio is not None and ratio >= WARNING_RATIO,
        _because(preemptions, completions, rate, usual),
        details={
            "preemptions_per_completion": ratio,
            "completions_per_second": completions / seconds,
        },
        state=State.PREEMPTION_STORM if storm else None,
    )


def _recently(history: History) -> tuple[float, float, float]:
    """Preemptions, completions and seconds over as little of the past as says enough."""
    preemptions, completions = gained(history, "preemptions"), gained(history, "completions")
    seconds = span_seconds(history)
    for back in range(4):
        lost, done = (history.blocks.last(name, back) for name in ("preemptions", "completions"))
        if completions >= MIN_COMPLETIONS or not done >= 0 or not lost >= 0:
            break
        preemptions, completions = preemptions + lost, completions + done
        seconds += history.settings.block_seconds
    return preemptions, completions, seconds


def _generation_rates(history: History) -> tuple[float | None, float | None]:
    """Tokens a second now, and usually, in blocks of this epoch that were not preempting much."""
    seconds = span_seconds(history)
    values = known(history, "generation_tokens")
    rate = gained(history, "generation_tokens") / seconds if seconds and len(values) > 1 else None
    columns = ("generation_tokens", "preemptions", "completions", "running")
    rows = zip(*(history.blocks.column(name) for name in columns), strict=True)
    usual = [
        tokens / history.settings.block_seconds
        for tokens, lost, done, running in rows
        if tokens > 0 and running >= 1 and not lost > WARNING_RATIO * done
    ]
    return rate, median(usual) if usual else None


def _because(
    preemptions: float, completions: float, rate: float | None, usual: float | None
) -> str:
    text = (
        f"{preemptions:.0f} preemptions over {completions:.0f} completions "
        f"(a busy healthy engine shows {HEALTHY_RATIO} each)"
    )
    if rate is None or usual is None:
        return text
    return f"{text}; {rate:.0f} generated tokens/s, usually {usual:.0f}"
